//! Owners of sessions.

use profiler_core::{Epoch, WorkerId};

use super::Ingest;
use crate::session::HelloError;
use base::sync::lock;
use shares::Account;

impl Ingest {
    /// Checks that an epoch without a key is continued by its own identity only, where identities are secrets.
    pub(super) fn check_owner(
        &self,
        worker: &WorkerId,
        epoch: Epoch,
        account: &Account,
    ) -> Result<(), HelloError> {
        let cell = lock(&self.state.registry).get(worker, epoch).cloned();
        let Some(cell) = cell.filter(|_| !epoch.has_key()) else {
            return Ok(());
        };
        let session = lock(&cell.state);
        match session.owner().map(|owner| &owner.identity) {
            Some(owner)
                if *owner != account.identity
                    && (owner.is_proven() || account.identity.is_proven()) =>
            {
                Err(HelloError::Key)
            }
            _ => Ok(()),
        }
    }
}
