//! Settings of this process: files that grow too large.

/// Makes a write beyond the limit of file sizes an error (EFBIG). By default SIGXFSZ ends the process.
pub fn ignore_file_size_signal() {
    // SAFETY: ignoring a signal installs no handler.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}
