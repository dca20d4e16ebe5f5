#![forbid(unsafe_code)]
//! A table by number that grows a page at a time.

/// How many entries a page has.
const PAGE: usize = 256;

/// Entries by number, each its type's default until it is first used.
///
/// A look-up is two loads. The table grows by one page of 256 entries, when a number in that page
/// is used for the first time, and never shrinks: it allocates at the high-water mark only. A hash
/// map would do as well but for one step: when it grows it moves everything that it holds.
#[derive(Debug)]
pub(crate) struct Paged<T> {
    pages: Vec<Option<Box<[T]>>>,
}

impl<T: Default> Paged<T> {
    /// A table with its first page.
    pub(crate) fn new() -> Self {
        Self { pages: vec![Some(Self::page())] }
    }

    fn page() -> Box<[T]> {
        std::iter::repeat_with(T::default).take(PAGE).collect()
    }

    #[inline]
    pub(crate) fn get(&self, number: usize) -> Option<&T> {
        self.pages.get(number / PAGE)?.as_ref().map(|page| &page[number % PAGE])
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, number: usize) -> Option<&mut T> {
        self.pages.get_mut(number / PAGE)?.as_mut().map(|page| &mut page[number % PAGE])
    }

    /// The entry of this number, whose page is made if there is none.
    pub(crate) fn entry(&mut self, number: usize) -> &mut T {
        let page = number / PAGE;
        if page >= self.pages.len() {
            self.pages.resize_with(page + 1, || None);
        }
        &mut self.pages[page].get_or_insert_with(Self::page)[number % PAGE]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_its_default_until_it_is_used() {
        let mut table = Paged::<u32>::new();
        assert_eq!(table.get(PAGE - 1), Some(&0));
        assert_eq!(table.get(PAGE), None);
        *table.entry(7) = 3;
        assert_eq!(table.get(7), Some(&3));
    }

    #[test]
    fn a_large_number_costs_one_page() {
        let mut table = Paged::<u32>::new();
        *table.entry(1_000_000) = 9;
        assert_eq!(table.get_mut(1_000_000), Some(&mut 9));
        assert_eq!(table.pages.iter().filter(|page| page.is_some()).count(), 2);
    }
}
