//! The host's side of untrusted trees, against trees as hostile as a run can make them, real overlays, and death at
//! any moment. Everything runs once more as an ordinary user: see `ordinary.rs`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail loudly"
)]

mod browse;
mod commit;
mod hostile;
mod kill;
mod ordinary;
mod overlay;
mod race;
mod read;
mod remove;
mod support;
mod work;
mod write;
