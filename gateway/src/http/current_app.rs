//! The state that requests are served with now. A reload replaces it as a whole.
//!
//! Invariant: a request takes it once, when it begins, so that no request sees two of them, and one under way finishes
//! with what it began with.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::app::App;
use super::{Routes, probe_only_routes, routes};

/// The present [`App`], with its routes.
#[derive(Debug)]
pub struct CurrentApp(ArcSwap<ServedApp>);

/// One state, and the routes that serve with it.
#[derive(Debug)]
pub struct ServedApp {
    /// The state.
    pub app: Arc<App>,
    /// All routes.
    pub routes: Routes,
    /// The routes of connections beyond the limit.
    pub probe_routes: Routes,
}

impl ServedApp {
    fn new(app: Arc<App>) -> Arc<Self> {
        Arc::new(Self {
            routes: routes(Arc::clone(&app)),
            probe_routes: probe_only_routes(Arc::clone(&app)),
            app,
        })
    }
}

impl CurrentApp {
    /// Serves with this state first.
    #[must_use]
    pub fn new(app: Arc<App>) -> Arc<Self> {
        Arc::new(Self(ArcSwap::new(ServedApp::new(app))))
    }

    /// The present state. Costs one atomic load and the count of its users.
    #[must_use]
    pub fn get(&self) -> Arc<ServedApp> {
        self.0.load_full()
    }

    /// Requests that begin from now on are served with this state.
    pub fn replace(&self, app: Arc<App>) {
        self.0.store(ServedApp::new(app));
    }
}
