//! The server's allocator, so that `INFO memory` and `maxmemory` include the module's memory.
//!
//! Invariant: a block is freed by the allocator that it came from. Tests of this crate run without a server and use
//! Rust's.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;

use redis_module::raw;

#[global_allocator]
static ALLOCATOR: ServerAllocator = ServerAllocator;

struct ServerAllocator;

/// The alignment of every block of the server's allocator.
const SERVER_ALIGNMENT: usize = 16;

// SAFETY: the four functions are malloc, calloc, realloc and free behind the server's accounting. Their blocks are
// aligned to sixteen bytes once they are that long, and sizes here are multiples of the alignment asked for. Layouts
// with a larger alignment use the system's allocator, by the same check on allocation and deallocation.
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
