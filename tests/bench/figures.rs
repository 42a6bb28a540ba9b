//! Medians and percentiles, and nothing cleverer.

/// The value below which `part` of the sorted values lie; 0 where there are none.
pub(crate) fn percentile<T: Copy + Default>(sorted: &[T], part: f64) -> T {
    let last = sorted.len().saturating_sub(1);
    let index = (last as f64 * part).round() as usize;
    sorted.get(index).copied().unwrap_or_default()
}

/// The median; of an even number of values the lower of the two in the middle.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len().saturating_sub(1) / 2;
    values.get(middle).copied().unwrap_or_default()
}
