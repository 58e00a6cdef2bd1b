//! The real system with a manual clock, counted ids and a stub launcher: messages go to real addresses, replies and
//! rows are asserted.

mod pauses;
mod restarts;
mod running;
mod support;
mod ticks;
