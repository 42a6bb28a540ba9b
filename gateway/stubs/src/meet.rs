//! The intersection of two kinds: the `allOf` of a schema.
//!
//! If it is empty, the schema contradicts itself, and the first of the two is used: a stub that says too little is of
//! more use than one that cannot be called.

use super::kind::{Field, Kind, Literal, Object};
use super::limits;

/// The intersection of both.
pub(super) fn meet(first: Kind, second: Kind) -> Kind {
    match common(&first, &second) {
        Some(kind) => kind,
        None => first,
    }
}

fn common(first: &Kind, second: &Kind) -> Option<Kind> {
    match (first, second) {
        (Kind::Any, other) | (other, Kind::Any) => Some(other.clone()),
        (same, other) if same == other => Some(same.clone()),
        (Kind::Union(kinds), other) | (other, Kind::Union(kinds)) => {
            let found: Vec<Kind> = kinds
                .iter()
                .filter_map(|kind| common(kind, other))
                .collect();
            (!found.is_empty()).then(|| Kind::union(found))
        }
        (Kind::Object(a), Kind::Object(b)) => Some(Kind::Object(joined(a, b))),
        (Kind::Object(object), Kind::Map(_)) | (Kind::Map(_), Kind::Object(object)) => {
            Some(Kind::Object(object.clone()))
        }
        (Kind::Map(a), Kind::Map(b)) => common(a, b).map(|kind| Kind::Map(Box::new(kind))),
        (Kind::List(a), Kind::List(b)) => common(a, b).map(|kind| Kind::List(Box::new(kind))),
        (Kind::Tuple(tuple), Kind::List(_)) | (Kind::List(_), Kind::Tuple(tuple)) => {
            Some(Kind::Tuple(tuple.clone()))
        }
        (Kind::Integer, Kind::Number) | (Kind::Number, Kind::Integer) => Some(Kind::Integer),
        (Kind::Literals(values), other) | (other, Kind::Literals(values)) => {
            let fits = |value: &&Literal| is_of(value, other);
            let found: Vec<Literal> = values.iter().filter(fits).cloned().collect();
            (!found.is_empty()).then_some(Kind::Literals(found))
        }
        (Kind::Named(_), _) => Some(first.clone()),
        (_, Kind::Named(_)) => Some(second.clone()),
        _ => None,
    }
}

fn is_of(value: &Literal, kind: &Kind) -> bool {
    match (value, kind) {
        (value, Kind::Literals(values)) => values.contains(value),
        (Literal::Text(_), Kind::Text)
        | (Literal::Integer(_), Kind::Integer | Kind::Number)
        | (Literal::Boolean(_), Kind::Boolean) => true,
        _ => false,
    }
}

fn joined(first: &Object, second: &Object) -> Object {
    let mut fields: Vec<Field> = first.fields.clone();
    for field in &second.fields {
        match fields.iter_mut().find(|known| known.name == field.name) {
            Some(known) => {
                known.is_required |= field.is_required;
                known.kind = meet(known.kind.clone(), field.kind.clone());
                if known.description.is_empty() {
                    known.description.clone_from(&field.description);
                }
            }
            None => fields.push(field.clone()),
        }
    }
    fields.sort_by(|a, b| a.name.cmp(&b.name));
    fields.truncate(limits::FIELDS_MAX);
    Object {
        fields,
        rest: first.rest.clone().or_else(|| second.rest.clone()),
    }
}
