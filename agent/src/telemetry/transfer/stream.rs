//! Readers and writers that count the bytes of a transfer.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};

use pin_project_lite::pin_project;

use super::TransferGuard;

pin_project! {
    /// Counts the bytes that are read as a transfer. The transfer ends at the end of the stream, at an
    /// error, or when this is dropped.
    ///
    /// Implements [`Read`] if `R` does, and with the feature `tokio-io`, which is part of `ship`,
    /// tokio's `AsyncRead`.
    ///
    /// ```
    /// use std::io::Read;
    /// use emberline_agent::{Direction, transfer};
    ///
    /// let socket: &[u8] = b"data of the other end";
    /// let mut reader = transfer(Direction::Incoming, "worker-2").key("x-17").reader(socket);
    /// let mut data = Vec::new();
    /// reader.read_to_end(&mut data)?;
    /// # assert_eq!(data.len(), 21);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[derive(Debug)]
    pub struct TransferReader<R> {
        #[pin]
        inner: R,
        transfer: Option<TransferGuard>,
    }
}

pin_project! {
    /// Counts the bytes that are written as a transfer. The transfer ends at an error, when an async
    /// writer is shut down, or when this is dropped.
    ///
    /// Implements [`Write`] if `W` does, and with the feature `tokio-io`, which is part of `ship`,
    /// tokio's `AsyncWrite`.
    ///
    /// ```
    /// use std::io::Write;
    /// use emberline_agent::{Direction, transfer};
    ///
    /// let mut writer = transfer(Direction::Outgoing, "worker-2").key("x-17").writer(Vec::new());
    /// writer.write_all(b"data for the other end")?;
    /// let socket = writer.finish();
    /// # assert_eq!(socket.len(), 22);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[derive(Debug)]
    pub struct TransferWriter<W> {
        #[pin]
        inner: W,
        transfer: Option<TransferGuard>,
    }
}

impl<R> TransferReader<R> {
    /// Counts the bytes read from `inner` as part of a started transfer.
    pub fn new(inner: R, transfer: TransferGuard) -> Self {
        TransferReader {
            inner,
            transfer: Some(transfer),
        }
    }

    /// Returns the transfer, to add compressed bytes; `None` after it has ended.
    pub fn transfer(&mut self) -> Option<&mut TransferGuard> {
        self.transfer.as_mut()
    }

    /// Ends the transfer and returns the reader.
    pub fn finish(self) -> R {
        self.inner
    }
}

impl<W> TransferWriter<W> {
    /// Counts the bytes written to `inner` as part of a started transfer.
    pub fn new(inner: W, transfer: TransferGuard) -> Self {
        TransferWriter {
            inner,
            transfer: Some(transfer),
        }
    }

    /// Returns the transfer, to add compressed bytes; `None` after it has ended.
    pub fn transfer(&mut self) -> Option<&mut TransferGuard> {
        self.transfer.as_mut()
    }

    /// Ends the transfer and returns the writer.
    pub fn finish(self) -> W {
        self.inner
    }
}

/// Counts the bytes of a call. An error ends the transfer, unless the call is only to be repeated.
fn count(transfer: &mut Option<TransferGuard>, done: &io::Result<usize>) {
    match done {
        Ok(bytes) => add(transfer, *bytes),
        Err(error) => count_error(transfer, error),
    }
}

fn add(transfer: &mut Option<TransferGuard>, bytes: usize) {
    if let Some(transfer) = transfer {
        transfer.add_bytes(bytes as u64);
    }
}

fn count_error(transfer: &mut Option<TransferGuard>, error: &io::Error) {
    if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) {
        return;
    }
    if let Some(transfer) = transfer.take() {
        transfer.fail(error);
    }
}

impl<R: Read> Read for TransferReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let done = self.inner.read(buffer);
        count(&mut self.transfer, &done);
        if matches!(done, Ok(0)) && !buffer.is_empty() {
            drop(self.transfer.take());
        }
        done
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let has_room = buffers.iter().any(|buffer| !buffer.is_empty());
        let done = self.inner.read_vectored(buffers);
        count(&mut self.transfer, &done);
        if matches!(done, Ok(0)) && has_room {
            drop(self.transfer.take());
        }
        done
    }
}

impl<W: Write> Write for TransferWriter<W> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let done = self.inner.write(data);
        count(&mut self.transfer, &done);
        done
    }

    fn write_vectored(&mut self, data: &[IoSlice<'_>]) -> io::Result<usize> {
        let done = self.inner.write_vectored(data);
        count(&mut self.transfer, &done);
        done
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner
            .flush()
            .inspect_err(|error| count_error(&mut self.transfer, error))
    }
}

#[cfg(feature = "tokio-io")]
mod poll {
    use std::io::{self, IoSlice};
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    use super::{TransferReader, TransferWriter, add, count, count_error};

    impl<R: AsyncRead> AsyncRead for TransferReader<R> {
        fn poll_read(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let this = self.project();
            let before = buffer.filled().len();
            let has_room = buffer.remaining() > 0;
            let done = this.inner.poll_read(context, buffer);
            match &done {
                Poll::Ready(Ok(())) => {
                    let bytes = buffer.filled().len().saturating_sub(before);
                    add(this.transfer, bytes);
                    if bytes == 0 && has_room {
                        drop(this.transfer.take());
                    }
                }
                Poll::Ready(Err(error)) => count_error(this.transfer, error),
                Poll::Pending => {}
            }
            done
        }
    }

    impl<W: AsyncWrite> AsyncWrite for TransferWriter<W> {
        fn poll_write(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            data: &[u8],
        ) -> Poll<io::Result<usize>> {
            let this = self.project();
            let done = this.inner.poll_write(context, data);
            if let Poll::Ready(done) = &done {
                count(this.transfer, done);
            }
            done
        }

        fn poll_write_vectored(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            data: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let this = self.project();
            let done = this.inner.poll_write_vectored(context, data);
            if let Poll::Ready(done) = &done {
                count(this.transfer, done);
            }
            done
        }

        fn is_write_vectored(&self) -> bool {
            self.inner.is_write_vectored()
        }

        fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            let this = self.project();
            let done = this.inner.poll_flush(context);
            if let Poll::Ready(Err(error)) = &done {
                count_error(this.transfer, error);
            }
            done
        }

        fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            let this = self.project();
            let done = this.inner.poll_shutdown(context);
            match &done {
                Poll::Ready(Ok(())) => drop(this.transfer.take()),
                Poll::Ready(Err(error)) => count_error(this.transfer, error),
                Poll::Pending => {}
            }
            done
        }
    }
}
