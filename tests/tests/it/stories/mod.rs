//! The stories of the requirement on session affinity, US-1 to US-4, each scenario as a test of its own in its own words.
//! Three gateways share one Redis; nginx in front of them sends each request to the next.

mod context;
mod elicitation;
mod rig;
mod switches;
mod workers;
