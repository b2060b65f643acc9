//! How two figures of the same turns compare.

use crate::median::{middle, sorted};

/// The median of what one figure is, divided by another one of the same turn. What else the machine does changes from
/// second to second, and hits both alike only within a turn.
pub(crate) fn ratio(ours: &[f64], others: &[f64]) -> Option<f64> {
    let ratio = middle(&sorted(ours.iter().zip(others).map(|(ours, other)| ours / other)));
    Some(ratio).filter(|ratio| ratio.is_finite())
}

#[test]
fn a_ratio_is_that_of_the_usual_turn() {
    assert_eq!(ratio(&[2.0, 20.0, 9.0], &[1.0, 10.0, 3.0]), Some(2.0));
    assert_eq!(ratio(&[2.0, 4.0], &[1.0, 1.0]), Some(3.0));
    assert_eq!(ratio(&[2.0], &[]), None);
    assert_eq!(ratio(&[2.0], &[0.0]), None);
}
