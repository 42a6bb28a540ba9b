//! The server's own allocator, so that `INFO memory` and `maxmemory` count what the module holds.
//!
//! Invariant: a block goes back to where it came from. Tests of this crate run without a server and keep Rust's.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;

use redis_module::raw;

#[global_allocator]
static ALLOCATOR: ServerAllocator = ServerAllocator;

struct ServerAllocator;

/// The alignment that every block of the server's allocator has, whatever is behind it.
const SERVER_ALIGNMENT: usize = 16;

// SAFETY: the four functions are malloc, calloc, realloc and free behind the server's accounting. Their blocks are
// aligned to sixteen bytes once they are that long, and sizes here are multiples of the alignment asked for. What asks
// for more goes to the system's allocator, by the same test of its layout on the way in and out.
unsafe impl GlobalAlloc for ServerAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() > SERVER_ALIGNMENT {
            // SAFETY: the caller's own layout.
            return unsafe { System.alloc(layout) };
        }
        let size = layout.pad_to_align().size();
        api!(RedisModule_Alloc(size), ptr::null_mut()).cast()
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() > SERVER_ALIGNMENT {
            // SAFETY: the caller's own layout.
            return unsafe { System.alloc_zeroed(layout) };
        }
        let size = layout.pad_to_align().size();
        api!(RedisModule_Calloc(1, size), ptr::null_mut()).cast()
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if layout.align() > SERVER_ALIGNMENT {
            // SAFETY: `block` came from there with this layout, and the new size is the caller's.
            return unsafe { System.realloc(block, layout, size) };
        }
        let size = size.next_multiple_of(layout.align());
        api!(RedisModule_Realloc(block.cast(), size), ptr::null_mut()).cast()
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if layout.align() > SERVER_ALIGNMENT {
            // SAFETY: `block` came from there with this layout.
            return unsafe { System.dealloc(block, layout) };
        }
        api!(RedisModule_Free(block.cast()), ());
    }
}
