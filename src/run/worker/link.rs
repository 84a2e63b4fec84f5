//! The socket between two processes that hand memory to each other, over which they send file descriptors.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use hardware::limits::{self, Scarce};
use hardware::{ErrorKind, HardwareError};

/// One end of the socket.
pub(super) struct Link(UnixStream);

impl Link {
    /// Takes over an end.
    pub(super) fn new(end: OwnedFd) -> Self {
        Self(UnixStream::from(end))
    }

    /// Sends a descriptor, which the other process then owns too.
    ///
    /// # Errors
    ///
    /// The other process is gone, or the system refuses it.
    pub(super) fn send(&self, descriptor: &OwnedFd) -> Result<(), HardwareError> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut message = SendAncillaryBuffer::new(&mut space);
        let descriptors = [descriptor.as_fd()];
        message.push(SendAncillaryMessage::ScmRights(&descriptors));
        let sent = sendmsg(&self.0, &[IoSlice::new(b"d")], &mut message, SendFlags::NOSIGNAL);
        sent.map(drop).map_err(|error| failed("sendmsg", error))
    }

    /// Waits for a descriptor. The parent ends this process if none comes.
    ///
    /// # Errors
    ///
    /// The other process is gone, or this one may open no more files.
    pub(super) fn receive(&self) -> Result<OwnedFd, HardwareError> {
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut message = RecvAncillaryBuffer::new(&mut space);
            let mut byte = [0];
            let received = recvmsg(
                &self.0,
                &mut [IoSliceMut::new(&mut byte)],
                &mut message,
                RecvFlags::CMSG_CLOEXEC,
            )
            .map_err(|error| failed("recvmsg", error))?;
            let descriptor = message.drain().find_map(|message| match message {
                RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
                _ => None,
            });
            if let Some(descriptor) = descriptor {
                return Ok(descriptor);
            }
            // The kernel drops a descriptor that this process has no room for.
            if received.flags.contains(ReturnFlags::CTRUNC) {
                return Err(failed("recvmsg", Errno::MFILE));
            }
            if received.bytes == 0 {
                let why = "recvmsg: the other process is gone";
                return Err(HardwareError::new(ErrorKind::Other, why));
            }
        }
    }
}

fn failed(call: &str, error: Errno) -> HardwareError {
    let error = std::io::Error::from(error);
    let limit = limits::of_error(&error).or_else(|| limits::blame(Scarce::LastFiles));
    match limit {
        Some(limit) => HardwareError::new(ErrorKind::Hindered, format!("{call}: {error}; {limit}")),
        None => HardwareError::new(ErrorKind::Other, format!("{call}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek, Write};

    #[test]
    fn a_file_is_sent_with_its_contents_and_the_end_of_the_other_is_an_error() {
        let (one, other) = UnixStream::pair().unwrap();
        let (one, other) = (Link::new(one.into()), Link::new(other.into()));
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"bytes").unwrap();
        one.send(&file.into()).unwrap();
        let mut got = std::fs::File::from(other.receive().unwrap());
        got.rewind().unwrap();
        let mut bytes = String::new();
        got.read_to_string(&mut bytes).unwrap();
        assert_eq!(bytes, "bytes");
        drop(one);
        let gone = other.receive().unwrap_err();
        assert!(gone.message.contains("gone"), "{gone}");
    }

    #[test]
    fn bytes_without_a_descriptor_are_passed_over() {
        let (one, other) = UnixStream::pair().unwrap();
        (&one).write_all(b"some library wrote this\n").unwrap();
        let (one, other) = (Link::new(one.into()), Link::new(other.into()));
        one.send(&tempfile::tempfile().unwrap().into()).unwrap();
        assert!(other.receive().is_ok());
    }
}
