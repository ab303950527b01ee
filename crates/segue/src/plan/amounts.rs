//! Numbers of a manifest in the planner's words.

use api::IntOrPercent;
use planner::Amount;

pub(super) fn amount(value: &IntOrPercent) -> Amount {
    match value {
        IntOrPercent::Count(number) => Amount::Count(count(*number)),
        percent @ IntOrPercent::Percent(_) => {
            Amount::Percent(count(percent.floor_of(100).unwrap_or_default()))
        }
    }
}

/// Validation lets no negative number through.
pub(super) fn count(value: i32) -> u32 {
    u32::try_from(value).unwrap_or_default()
}
