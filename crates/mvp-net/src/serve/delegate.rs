//! `AsyncWrite` for wrappers of a stream, which differ only in how they read.

/// Implements `AsyncWrite` for a wrapper that has its stream in the field `stream`.
///
/// Each call first runs `$check`, a function of the wrapper and the task's context that may fail. A
/// write tells `$wrote` its outcome. A shutdown ends with `$finish`, after that of the stream.
macro_rules! delegate_write {
    ($wrapper:ident, $check:expr, $wrote:expr, $finish:expr) => {
        impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for $wrapper<T> {
            fn poll_write(
                mut self: Pin<&mut Self>,
                context: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                $check(&mut *self, context)?;
                let wrote = Pin::new(&mut self.stream).poll_write(context, bytes);
                $wrote(&mut *self, &wrote);
                wrote
            }

            fn poll_write_vectored(
                mut self: Pin<&mut Self>,
                context: &mut Context<'_>,
                slices: &[io::IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                $check(&mut *self, context)?;
                let wrote = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
                $wrote(&mut *self, &wrote);
                wrote
            }

            fn is_write_vectored(&self) -> bool {
                self.stream.is_write_vectored()
            }

            fn poll_flush(
                mut self: Pin<&mut Self>,
                context: &mut Context<'_>,
            ) -> Poll<io::Result<()>> {
                $check(&mut *self, context)?;
                Pin::new(&mut self.stream).poll_flush(context)
            }

            fn poll_shutdown(
                mut self: Pin<&mut Self>,
                context: &mut Context<'_>,
            ) -> Poll<io::Result<()>> {
                $check(&mut *self, context)?;
                ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
                $finish(&mut *self, context)
            }
        }
    };
    ($wrapper:ident) => {
        delegate_write!(
            $wrapper,
            |_: &mut Self, _: &mut Context<'_>| io::Result::Ok(()),
            |_: &mut Self, _: &Poll<io::Result<usize>>| (),
            |_: &mut Self, _: &mut Context<'_>| Poll::Ready(io::Result::Ok(()))
        );
    };
}

pub(super) use delegate_write;
