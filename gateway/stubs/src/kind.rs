//! The meaning of a schema, in a form from which the stubs of both languages are written.
//!
//! Invariant: a kind has an end. Where a schema refers to itself it does so by the number of a named kind, and between a
//! name and itself there always is a list, a map or an object.

/// One type.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    /// Anything: the schema has no constraint, or one that is not supported.
    Any,
    /// `null`.
    Null,
    /// `true` or `false`.
    Boolean,
    /// A number without a fraction.
    Integer,
    /// A number.
    Number,
    /// A string.
    Text,
    /// One of these values.
    Literals(Vec<Literal>),
    /// An array.
    List(Box<Kind>),
    /// An array whose places have kinds of their own.
    Tuple(Tuple),
    /// An object of any keys.
    Map(Box<Kind>),
    /// An object of known keys.
    Object(Object),
    /// One of these.
    Union(Vec<Kind>),
    /// The named kind of this number.
    Named(usize),
}

/// A value that a type can name, but for `null`, which is a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Literal {
    Boolean(bool),
    /// It is exact in both languages.
    Integer(i64),
    Text(String),
}

/// An array whose places have kinds of their own.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tuple {
    pub(super) places: Vec<Kind>,
    /// How many of them are always there.
    pub(super) required: usize,
    /// The type of further items.
    pub(super) rest: Option<Box<Kind>>,
}

/// An object of known keys.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Object {
    /// In the order of their names.
    pub(super) fields: Vec<Field>,
    /// The kind of other keys, if there may be others.
    pub(super) rest: Option<Box<Kind>>,
}

/// One key of an object.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) is_required: bool,
    /// As its author wrote it.
    pub(super) description: String,
}

/// The type of a tool's input or output: a root kind, and the named kinds it refers to.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TypeSchema {
    pub(super) root: Kind,
    pub(super) named: Vec<NamedKind>,
}

/// The types of a tool's input and output.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ToolSchemas {
    pub(super) input: TypeSchema,
    pub(super) output: TypeSchema,
}

impl ToolSchemas {
    /// Anything: what a stub is made with that would be too long with its types.
    pub(super) fn any() -> Self {
        Self {
            input: TypeSchema::any(),
            output: TypeSchema::any(),
        }
    }
}

/// A kind that the schema has a name for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NamedKind {
    /// Its name in the schema.
    pub(super) name: String,
    pub(super) kind: Kind,
}

impl TypeSchema {
    /// Anything.
    pub(super) fn any() -> Self {
        Self {
            root: Kind::Any,
            named: Vec::new(),
        }
    }

    /// Resolves the names of a kind.
    pub(super) fn resolve<'a>(&'a self, mut kind: &'a Kind) -> &'a Kind {
        // Names have no circle; the bound holds if that is ever broken.
        for _ in 0..=self.named.len() {
            let Kind::Named(number) = kind else {
                return kind;
            };
            let Some(named) = self.named.get(*number) else {
                break;
            };
            kind = &named.kind;
        }
        &Kind::Any
    }
}

impl Kind {
    /// How many kinds it is made of.
    pub(super) fn weight(&self) -> usize {
        match self {
            Kind::List(inner) | Kind::Map(inner) => inner.weight().saturating_add(1),
            Kind::Tuple(tuple) => tuple.places.iter().map(Kind::weight).sum::<usize>() + 1,
            Kind::Object(object) => {
                let fields = object.fields.iter().map(|field| field.kind.weight());
                fields.sum::<usize>() + 1
            }
            Kind::Union(kinds) => kinds.iter().map(Kind::weight).sum::<usize>() + 1,
            _ => 1,
        }
    }

    /// How many alternatives it has.
    pub(super) fn alternatives(&self) -> usize {
        match self {
            Kind::Union(kinds) => kinds.len(),
            _ => 1,
        }
    }

    /// One of these, simplified.
    pub(super) fn union(alternatives: impl IntoIterator<Item = Kind>) -> Kind {
        let mut found: Vec<Kind> = Vec::new();
        let mut literals: Vec<Literal> = Vec::new();
        for alternative in alternatives {
            match alternative {
                Kind::Any => return Kind::Any,
                Kind::Union(inner) => {
                    for kind in inner {
                        push(&mut found, &mut literals, kind);
                    }
                }
                kind => push(&mut found, &mut literals, kind),
            }
        }
        // Of whole numbers and numbers, numbers are enough.
        if found.contains(&Kind::Number) {
            found.retain(|kind| *kind != Kind::Integer);
        }
        if !literals.is_empty() {
            found.insert(0, Kind::Literals(literals));
        }
        // None comes last, as people write it.
        if let Some(place) = found.iter().position(|kind| *kind == Kind::Null) {
            let null = found.remove(place);
            found.push(null);
        }
        match found.len() {
            0 => Kind::Any,
            1 => found.pop().unwrap_or(Kind::Any),
            count if count > super::limits::ALTERNATIVES_MAX => Kind::Any,
            _ => Kind::Union(found),
        }
    }
}

fn push(found: &mut Vec<Kind>, literals: &mut Vec<Literal>, kind: Kind) {
    match kind {
        Kind::Literals(values) => {
            for value in values {
                if !literals.contains(&value) {
                    literals.push(value);
                }
            }
        }
        kind if found.contains(&kind) => {}
        kind => found.push(kind),
    }
}
