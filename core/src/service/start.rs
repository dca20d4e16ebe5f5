//! A future that is made where it runs: only its maker crosses over from another thread.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

/// Makes a future at its first poll, and is it from then on.
pub(crate) enum Start<Make, F> {
    /// Not polled yet.
    Maker(Option<Make>),
    /// Polled.
    Made(F),
}

// SAFETY: until it is polled it is only the maker, which may be sent. A task is polled by its
// worker alone, and from then on stays with it: the worker drops its future too. Before that
// anybody may drop it.
unsafe impl<Make: Send, F> Send for Start<Make, F> {}

impl<Make, F> Start<Make, F>
where
    Make: FnOnce() -> F,
    F: Future,
{
    /// # Safety
    /// It becomes the future of a pinned task, and is not polled by anybody but the task's worker.
    pub(crate) unsafe fn new(make: Make) -> Self {
        Self::Maker(Some(make))
    }
}

impl<Make, F> Future for Start<Make, F>
where
    Make: FnOnce() -> F,
    F: Future,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: `Made` is pinned from the moment it is there: it is not moved out, and is
        // dropped in place. The maker is never pinned.
        let this = unsafe { self.get_unchecked_mut() };
        if let Self::Maker(make) = this {
            let make = make.take().expect("the maker of a future did not panic before");
            *this = Self::Made(make());
        }
        let Self::Made(future) = this else { unreachable!("made above") };
        // SAFETY: as above.
        unsafe { Pin::new_unchecked(future) }.poll(context)
    }
}
