#![forbid(unsafe_code)]
//! Transfers that go on until all is done.

use std::io;
use std::os::fd::AsFd;

use super::IoReactor;
use super::buffer::{Buffer, BufferMut};
use crate::handle::Handle;

/// Transfers of a whole buffer, by as many operations as it takes. When one fails the error comes back
/// with the buffer; how much was transferred before is not said. Dropped midway, the part that was
/// transferred stays so.
impl<R: IoReactor + 'static> Handle<R> {
    /// Reads until the buffer is full.
    ///
    /// # Errors
    /// The system's; of the kind `UnexpectedEof` if the end comes before.
    pub async fn read_exact<B: BufferMut>(&self, fd: impl AsFd, buffer: B) -> (io::Result<()>, B) {
        exactly(buffer, async |rest, _| self.read(&fd, rest).await).await
    }

    /// Reads from `offset` bytes after the start of a file until the buffer is full.
    ///
    /// # Errors
    /// As [`read_exact`](Self::read_exact).
    pub async fn read_exact_at<B: BufferMut>(
        &self,
        fd: impl AsFd,
        buffer: B,
        offset: u64,
    ) -> (io::Result<()>, B) {
        exactly(buffer, async |rest, done| {
            self.read_at(&fd, rest, offset.saturating_add(done)).await
        })
        .await
    }

    /// Receives until the buffer is full.
    ///
    /// # Errors
    /// As [`read_exact`](Self::read_exact).
    pub async fn recv_exact<B: BufferMut>(
        &self,
        socket: impl AsFd,
        buffer: B,
    ) -> (io::Result<()>, B) {
        exactly(buffer, async |rest, _| self.recv(&socket, rest).await).await
    }

    /// Writes all of the buffer.
    ///
    /// # Errors
    /// The system's; of the kind `WriteZero` if nothing is taken any more.
    pub async fn write_all<B: Buffer>(&self, fd: impl AsFd, buffer: B) -> (io::Result<()>, B) {
        all(buffer, async |rest, _| self.write(&fd, rest).await).await
    }

    /// Writes all of the buffer to `offset` bytes after the start of a file.
    ///
    /// # Errors
    /// As [`write_all`](Self::write_all).
    pub async fn write_all_at<B: Buffer>(
        &self,
        fd: impl AsFd,
        buffer: B,
        offset: u64,
    ) -> (io::Result<()>, B) {
        all(buffer, async |rest, done| self.write_at(&fd, rest, offset.saturating_add(done)).await)
            .await
    }

    /// Sends all of the buffer.
    ///
    /// # Errors
    /// As [`write_all`](Self::write_all).
    pub async fn send_all<B: Buffer>(&self, socket: impl AsFd, buffer: B) -> (io::Result<()>, B) {
        all(buffer, async |rest, _| self.send(&socket, rest).await).await
    }
}

/// What is left of a buffer, and how much is done.
type Rest<B> = super::Slice<B>;

async fn exactly<B: BufferMut>(
    mut buffer: B,
    mut read: impl AsyncFnMut(Rest<B>, u64) -> (io::Result<usize>, Rest<B>),
) -> (io::Result<()>, B) {
    let mut done = 0;
    while done < buffer.capacity() {
        let (result, rest) = read(buffer.slice(done..), done as u64).await;
        buffer = rest.into_inner();
        match result {
            Ok(0) => {
                let ended = "the end came before the buffer was full";
                return (Err(io::Error::new(io::ErrorKind::UnexpectedEof, ended)), buffer);
            }
            Ok(more) => done += more,
            Err(error) => return (Err(error), buffer),
        }
    }
    (Ok(()), buffer)
}

async fn all<B: Buffer>(
    mut buffer: B,
    mut write: impl AsyncFnMut(Rest<B>, u64) -> (io::Result<usize>, Rest<B>),
) -> (io::Result<()>, B) {
    let mut done = 0;
    while done < buffer.filled() {
        let (result, rest) = write(buffer.slice(done..), done as u64).await;
        buffer = rest.into_inner();
        match result {
            Ok(0) => {
                let stuck = "nothing is taken any more, though there is more to write";
                return (Err(io::Error::new(io::ErrorKind::WriteZero, stuck)), buffer);
            }
            Ok(more) => done += more,
            Err(error) => return (Err(error), buffer),
        }
    }
    (Ok(()), buffer)
}
