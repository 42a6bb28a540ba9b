//! Tests over every store, and random operations that all of them have to answer alike.

mod desired_state;
mod differential;
mod every_store;
mod history;
mod operations;
mod scenarios;
mod side;
mod turns;
mod wishes;
