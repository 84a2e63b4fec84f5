//! The process at the other end of a Unix socket. The safe call of rustix cannot represent a process that this one
//! cannot see, whose number is 0.

use std::io::Error;
use std::os::fd::{AsFd, AsRawFd};

/// Returns the process and user at the other end, as they were when it connected or began to listen. The process is 0
/// if it is in a container that this process cannot see into.
///
/// # Errors
///
/// The socket is not connected.
pub(crate) fn peer(socket: impl AsFd) -> Result<(u32, u32), Error> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut size = libc::socklen_t::try_from(size_of::<libc::ucred>()).unwrap_or_default();
    // SAFETY: the kernel writes at most `size` bytes into the structure, which is plain numbers, and the size.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &raw mut size,
        )
    };
    if result != 0 {
        return Err(Error::last_os_error());
    }
    Ok((u32::try_from(found.pid).unwrap_or_default(), found.uid))
}
