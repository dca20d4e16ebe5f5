//! Buffers that the kernel takes itself, when there is something to receive.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::mem::{self, offset_of};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use evenkeel::io::BufferPool;

use crate::ring::Ring;

/// `struct io_uring_buf`. The last field of the first of a ring is the ring's tail.
#[repr(C)]
struct Place {
    address: u64,
    length: u32,
    number: u16,
    tail: AtomicU16,
}

/// How many buffers of a pool the kernel has at most: the others are for the pool's other users.
const STOCK: u16 = 16;

const PAGE: usize = 4096;

/// A ring of buffers that is registered with the kernel, for all flows of one pool.
struct Group {
    pool: BufferPool,
    places: NonNull<Place>,
    tail: u16,
    /// Which of the pool's buffers the kernel has.
    lent: Vec<u16>,
    /// How many flows use it.
    flows: usize,
}

// SAFETY: the places are the group's own, and shared with the kernel only.
unsafe impl Send for Group {}

fn layout() -> Layout {
    Layout::array::<Place>(usize::from(STOCK))
        .and_then(|layout| layout.align_to(PAGE))
        .expect("a page is no large thing")
}

impl Group {
    fn new(pool: BufferPool) -> Self {
        // SAFETY: the layout is of some bytes.
        let memory = unsafe { alloc_zeroed(layout()) };
        let Some(places) = NonNull::new(memory.cast()) else { handle_alloc_error(layout()) };
        Self { pool, places, tail: 0, lent: Vec::with_capacity(STOCK.into()), flows: 0 }
    }

    /// Gives the kernel what the pool can spare.
    fn stock(&mut self) {
        let before = self.tail;
        while self.lent.len() < usize::from(STOCK)
            && let Some((number, memory)) = self.pool.take()
        {
            // SAFETY: there are as many places, and of those before the tail the kernel has returned
            // as many as buffers are missing from the stock.
            unsafe {
                let place = self.places.as_ptr().add(usize::from(self.tail % STOCK));
                (*place).address = memory.start() as u64;
                (*place).length =
                    u32::try_from(memory.len()).expect("a pool's buffers are smaller");
                (*place).number = number;
            }
            self.lent.push(number);
            self.tail = self.tail.wrapping_add(1);
        }
        if self.tail != before {
            // SAFETY: the tail is where the first place ends.
            let tail = unsafe { &(*self.places.as_ptr()).tail };
            // Ordering: Release, pairs with the kernel's acquire of the tail: the places are written.
            tail.store(self.tail, Ordering::Release);
        }
    }

    /// The kernel has filled this one.
    fn filled(&mut self, number: u16) {
        self.lent.retain(|&lent| lent != number);
    }
}

/// The kernel has let go of the places and of the buffers.
impl Drop for Group {
    fn drop(&mut self) {
        for number in self.lent.drain(..) {
            // SAFETY: taken by `stock`, and the kernel has no ring any more to take it from.
            unsafe { self.pool.give_back(number) };
        }
        // SAFETY: allocated with this layout by `new`.
        unsafe { dealloc(self.places.as_ptr().cast(), layout()) };
    }
}

/// The groups of a ring, by their numbers.
#[derive(Default)]
pub(crate) struct Groups(Vec<Option<Group>>);

impl Groups {
    /// The group of a pool, for one flow more. An error if the kernel knows none (before 5.19). One system
    /// call, if it is the pool's first flow.
    pub(crate) fn open(&mut self, ring: &Ring, pool: &BufferPool) -> io::Result<u16> {
        let of_pool = |group: &Option<Group>| group.as_ref().is_some_and(|it| it.pool.is(pool));
        let place = match self.0.iter().position(of_pool) {
            Some(place) => place,
            None => self.register(ring, pool)?,
        };
        let group = self.0[place].as_mut().expect("it was found");
        group.flows += 1;
        Ok(u16::try_from(place).expect("there are as many as numbers"))
    }

    fn register(&mut self, ring: &Ring, pool: &BufferPool) -> io::Result<usize> {
        let place = self.0.iter().position(Option::is_none).unwrap_or(self.0.len());
        let number = u16::try_from(place).map_err(|_| io::ErrorKind::QuotaExceeded)?;
        let group = Group::new(pool.clone());
        // SAFETY: the places stay where they are until the group is closed, or for ever.
        unsafe { ring.register_buffers(group.places.as_ptr() as u64, STOCK, number)? };
        if place == self.0.len() {
            self.0.push(None);
        }
        self.0[place] = Some(group);
        Ok(place)
    }

    /// Gives the kernel what the group's pool can spare.
    pub(crate) fn stock(&mut self, number: u16) {
        if let Some(Some(group)) = self.0.get_mut(usize::from(number)) {
            group.stock();
        }
    }

    /// The kernel has filled a buffer of the group: it is the flow's now.
    pub(crate) fn filled(&mut self, number: u16, buffer: u16) {
        if let Some(Some(group)) = self.0.get_mut(usize::from(number)) {
            group.filled(buffer);
        }
    }

    /// A flow of the group has ended. With the last one the buffers go back. One system call then.
    pub(crate) fn close(&mut self, ring: &Ring, number: u16) {
        let Some(place) = self.0.get_mut(usize::from(number)) else { return };
        let Some(group) = place else { return };
        group.flows -= 1;
        if group.flows > 0 {
            return;
        }
        match ring.unregister_buffers(number) {
            Ok(()) => *place = None,
            // The kernel may still take from it: it keeps it, with the number.
            Err(_) => mem::forget(place.take()),
        }
    }

    /// Leaves all of them to the kernel, which may still take from them.
    pub(crate) fn leak(&mut self) {
        mem::forget(mem::take(&mut self.0));
    }
}

const _: () = assert!(offset_of!(Place, tail) == 14 && size_of::<Place>() == 16);
