//! Compiled by the tests of symbols: generics, closures, inlining.
#![no_std]

pub mod shapes {
    pub struct Pair<T>(pub T, pub T);

    impl<T: Copy + Into<u64>> Pair<T> {
        #[inline(always)]
        pub fn mixed(&self) -> u64 {
            let mixed: u64 = self.0.into();
            rotate(mixed) ^ self.1.into()
        }
    }

    #[inline(always)]
    fn rotate(value: u64) -> u64 {
        core::hint::black_box(value).rotate_left(7)
    }

    pub trait Sum {
        fn sum(&self) -> u64;
    }

    impl<T: Copy + Into<u64>> Sum for Pair<T> {
        #[inline(never)]
        fn sum(&self) -> u64 {
            self.mixed() + 1
        }
    }

    #[inline(never)]
    pub fn digest(values: &[u64]) -> u64 {
        let mut sum = 0;
        values.iter().for_each(|value| {
            sum ^= core::hint::black_box(*value);
        });
        sum
    }

    #[inline(never)]
    pub fn largest<T: Copy + PartialOrd>(values: &[T], first: T) -> T {
        values.iter().fold(first, |a, b| if *b > a { *b } else { a })
    }
}

#[no_mangle]
pub extern "C" fn entry(count: usize) -> u64 {
    use shapes::Sum as _;
    let values = core::hint::black_box([count as u64; 9]);
    let pair = shapes::Pair(count as u32, 7u32);
    shapes::digest(&values) ^ shapes::largest(&values, 3) ^ pair.sum() ^ pair.mixed()
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
