//! Settings of this process: files that grow too large, and memory that is freed.

/// Makes a write beyond the limit of file sizes an error (EFBIG). By default SIGXFSZ ends the process.
pub fn ignore_file_size_signal() {
    // SAFETY: ignoring a signal installs no handler.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// From this size on memory is the system's again as soon as it is freed, bytes: glibc's own limit at first, which it raises
/// with what is freed. Of 256 GPUs 20 to 40 MB are then kept between what is still used.
#[cfg(target_env = "gnu")]
const GIVEN_BACK: libc::c_int = 128 << 10;

/// Gives large memory back as soon as it is freed.
pub fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it sets a number of the allocator, which has a lock for that.
    let _ = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, GIVEN_BACK) };
}
