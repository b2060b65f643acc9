//! A lease that was not valid is never valid again, and nobody relies on one that was let go.

use redquorum::LeaseView;

use crate::world::World;

impl World {
    /// Whether there is nothing more to look at; an end that was seen is an end.
    pub(crate) fn has_ended(&self, number: usize) -> bool {
        let at = self.at();
        let mut history = self.history();
        let Some(hold) = history.holds.get_mut(number) else { return true };
        let (is_let_go, is_valid) = (hold.lease.is_none(), hold.is_valid());
        let is_back = hold.was_over && is_valid;
        hold.was_over |= !is_let_go && !is_valid;
        if is_back {
            history.violate(at, "validity never comes back", format!("lock {number}"));
        }
        is_let_go
    }

    /// After the last guard has let go.
    pub(crate) fn check_not_relied_on(&self, number: usize, lease: &LeaseView) {
        if lease.is_valid() {
            self.violate("what was let go is not valid", format!("lock {number}: {:?} left", lease.remaining()));
        }
    }
}
