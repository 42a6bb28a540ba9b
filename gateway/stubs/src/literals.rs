//! The values of an enumeration, as types.

use serde_json::Value;

use super::kind::{Kind, Literal};
use super::limits;

/// The greatest whole number that JavaScript counts to without a gap, and its opposite.
const EXACT: std::ops::RangeInclusive<i64> = -9_007_199_254_740_991..=9_007_199_254_740_991;

/// One of these values, where all of them can be named; else what they all are.
pub(super) fn literals(values: &[Value]) -> Kind {
    let of = if values.len() > limits::LITERALS_MAX {
        kind_of_value
    } else {
        literal
    };
    Kind::union(values.iter().map(of))
}

fn literal(value: &Value) -> Kind {
    let named = match value {
        Value::Bool(flag) => Some(Literal::Boolean(*flag)),
        Value::Number(number) => number
            .as_i64()
            .filter(|number| EXACT.contains(number))
            .map(Literal::Integer),
        Value::String(text) if text.chars().count() <= limits::LITERAL_CHARS_MAX => {
            Some(Literal::Text(text.clone()))
        }
        _ => None,
    };
    named.map_or_else(|| kind_of_value(value), |named| Kind::Literals(vec![named]))
}

/// The kind of the value.
fn kind_of_value(value: &Value) -> Kind {
    match value {
        Value::Null => Kind::Null,
        Value::Bool(_) => Kind::Boolean,
        Value::Number(number) if number.is_f64() => Kind::Number,
        Value::Number(_) => Kind::Integer,
        Value::String(_) => Kind::Text,
        Value::Array(_) => Kind::List(Box::new(Kind::Any)),
        Value::Object(_) => Kind::Map(Box::new(Kind::Any)),
    }
}
