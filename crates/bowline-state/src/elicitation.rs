//! What an agent wants to know of a person, as data for a front end: a form to fill in, or a page to visit.
//!
//! A [`Form`] says what to ask for, gives the defaults to begin with, and checks what was filled in before it is sent. A
//! [`Page`] says where an address leads, and what is odd about it, before a person agrees to go there. Texts are the
//! agent's own: [`crate::display`] makes them safe to show.

use std::collections::{BTreeMap, BTreeSet};

use agent_client_protocol_schema::v1::{
    ElicitationContentValue as Value, ElicitationPropertySchema as Property, ElicitationSchema, EnumOption,
    MultiSelectItems, MultiSelectPropertySchema, StringFormat, StringPropertySchema,
};

use crate::failure::quote;

mod formats;
mod page;

pub use page::{MAX_URL, Page, PageFault, Suspicion};

/// So many fields a form may have. A person who is shown more is not asked but worn down.
pub const MAX_FIELDS: usize = 100;

/// So many options one field may offer.
pub const MAX_OPTIONS: usize = 1000;

/// What a person has filled in, by the names of fields.
pub type Content = BTreeMap<String, Value>;

/// A form, ready to be shown.
#[derive(Debug, Clone, PartialEq)]
pub struct Form {
    /// What it is called.
    pub title: Option<String>,
    /// What it is for.
    pub description: Option<String>,
    /// What is asked for: what is required in the order that the agent lists it, then the rest by name. The protocol's
    /// types keep no other order.
    pub fields: Vec<Field>,
}

/// One thing that is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// Its name in the answer.
    pub name: String,
    /// Its name for people.
    pub title: Option<String>,
    /// What it is for.
    pub description: Option<String>,
    /// Whether the form is incomplete without it.
    pub required: bool,
    /// What can be filled in.
    pub input: Input,
}

/// What can be filled in.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// A text.
    Text {
        /// How long it may be, in characters.
        length: Bounds<u32>,
        /// The expression that it has to match. It is for the agent to check: there are too many kinds of expressions to
        /// do it here.
        pattern: Option<String>,
        /// What kind of text it is.
        format: Option<StringFormat>,
        /// What it is unless something else is said.
        default: Option<String>,
    },
    /// One of several.
    One {
        /// Which there are.
        options: Vec<Choice>,
        /// Which it is unless something else is said.
        default: Option<String>,
    },
    /// Some of several, each at most once.
    Some {
        /// Which there are.
        options: Vec<Choice>,
        /// How many may be chosen.
        count: Bounds<u64>,
        /// Which are unless something else is said.
        default: Option<Vec<String>>,
    },
    /// A number.
    Number {
        /// How large it may be.
        range: Bounds<f64>,
        /// What it is unless something else is said.
        default: Option<f64>,
    },
    /// A whole number.
    Integer {
        /// How large it may be.
        range: Bounds<i64>,
        /// What it is unless something else is said.
        default: Option<i64>,
    },
    /// Yes or no.
    Flag {
        /// Which unless something else is said.
        default: Option<bool>,
    },
    /// Something that is not known here. It cannot be filled in, and must not be shown as if it could.
    Unknown {
        /// What the agent calls it.
        kind: String,
    },
}

/// The least and the most, both included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bounds<T> {
    /// The least.
    pub least: Option<T>,
    /// The most.
    pub most: Option<T>,
}

/// One of several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// What is answered.
    pub value: String,
    /// How it is called; the value, if the agent gives it no name.
    pub title: String,
    /// What it means.
    pub description: Option<String>,
}

/// Why a form cannot be shown to anybody.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormFault {
    /// It is too long.
    #[error("the form has {0} fields, at most {MAX_FIELDS} are shown: ask for less")]
    TooManyFields(usize),
    /// It offers too much.
    #[error("field {} has {options} options, at most {MAX_OPTIONS} are shown: offer less", quote(.name))]
    TooManyOptions {
        /// The field.
        name: String,
        /// How many it has.
        options: usize,
    },
    /// What it requires cannot be filled in.
    #[error("field {} is required, and its type {} is not known here", quote(.name), quote(.kind))]
    UnknownType {
        /// The field.
        name: String,
        /// Its type.
        kind: String,
    },
    /// What it requires is not described.
    #[error("field {} is required, and is not among the properties", quote(.0))]
    NotDescribed(String),
}

/// What is wrong with what was filled in.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Fault {
    /// Something is missing.
    #[error("{} is required", quote(.0))]
    Missing(String),
    /// Something was not asked for.
    #[error("{} was not asked for", quote(.0))]
    NotAskedFor(String),
    /// It is not the kind of thing that was asked for.
    #[error("{} is not {wanted}", quote(.name))]
    Kind {
        /// The field.
        name: String,
        /// What was asked for.
        wanted: &'static str,
    },
    /// It is too little or too much.
    #[error("{} {what} {bound}", quote(.name))]
    Bound {
        /// The field.
        name: String,
        /// Which bound it breaks, in words.
        what: &'static str,
        /// The bound.
        bound: String,
    },
    /// It is none of the options.
    #[error("{} is none of the options", quote(.0))]
    NoOption(String),
    /// It has an option twice.
    #[error("{} has an option twice", quote(.0))]
    Twice(String),
}

impl Form {
    /// Returns the form that an agent asks to be filled in.
    ///
    /// # Errors
    /// Returns why it cannot be shown.
    pub fn read(schema: &ElicitationSchema) -> Result<Self, FormFault> {
        if schema.properties.len() > MAX_FIELDS {
            return Err(FormFault::TooManyFields(schema.properties.len()));
        }
        let mut required = BTreeSet::new();
        let mut fields = Vec::new();
        for name in schema.required.iter().flatten() {
            let property =
                schema.properties.get(name).ok_or_else(|| FormFault::NotDescribed(name.clone()))?;
            if required.insert(name) {
                fields.push(Field::read(name, property, true));
            }
        }
        let rest = schema.properties.iter().filter(|(name, _)| !required.contains(name));
        fields.extend(rest.map(|(name, property)| Field::read(name, property, false)));
        if let Some(fault) = fields.iter().find_map(Field::fault) {
            return Err(fault);
        }
        Ok(Self { title: schema.title.clone(), description: schema.description.clone(), fields })
    }

    /// Returns what the form is filled in with before anybody has touched it: the defaults that it would accept.
    #[must_use]
    pub fn defaults(&self) -> Content {
        let default = |field: &Field| {
            let value = field.input.default()?;
            field.check(&value).is_none().then(|| (field.name.clone(), value))
        };
        self.fields.iter().filter_map(default).collect()
    }

    /// Returns what is wrong with what was filled in; nothing, if it may be sent. Patterns are not looked at.
    #[must_use]
    pub fn check(&self, content: &Content) -> Vec<Fault> {
        let of_field = |field: &Field| match content.get(&field.name) {
            Some(value) => field.check(value),
            None => field.required.then(|| Fault::Missing(field.name.clone())),
        };
        let known: BTreeSet<&str> = self.fields.iter().map(|field| field.name.as_str()).collect();
        let more = content.keys().filter(|name| !known.contains(name.as_str()));
        let faults = self.fields.iter().filter_map(of_field);
        faults.chain(more.map(|name| Fault::NotAskedFor(name.clone()))).collect()
    }
}

impl Field {
    fn read(name: &str, property: &Property, required: bool) -> Self {
        let (title, description, input) = match property {
            Property::String(text) => (text.title.clone(), text.description.clone(), text_input(text)),
            Property::Number(number) => {
                let range = Bounds { least: number.minimum, most: number.maximum };
                let input = Input::Number { range, default: number.default };
                (number.title.clone(), number.description.clone(), input)
            }
            Property::Integer(number) => {
                let range = Bounds { least: number.minimum, most: number.maximum };
                let input = Input::Integer { range, default: number.default };
                (number.title.clone(), number.description.clone(), input)
            }
            Property::Boolean(flag) => {
                (flag.title.clone(), flag.description.clone(), Input::Flag { default: flag.default })
            }
            Property::Array(list) => (list.title.clone(), list.description.clone(), list_input(list)),
            Property::Other(other) => (None, None, Input::Unknown { kind: other.type_.clone() }),
            // A type that the protocol gains later is as good as one that an agent made up.
            _ => (None, None, Input::Unknown { kind: "new".to_owned() }),
        };
        Self { name: name.to_owned(), title, description, required, input }
    }

    /// Returns why it cannot be shown.
    fn fault(&self) -> Option<FormFault> {
        let name = self.name.clone();
        match &self.input {
            Input::One { options, .. } | Input::Some { options, .. } if options.len() > MAX_OPTIONS => {
                Some(FormFault::TooManyOptions { name, options: options.len() })
            }
            Input::Unknown { kind } if self.required => {
                Some(FormFault::UnknownType { name, kind: kind.clone() })
            }
            _ => None,
        }
    }

    /// Returns what is wrong with a value.
    fn check(&self, value: &Value) -> Option<Fault> {
        let kind = |wanted| Some(Fault::Kind { name: self.name.clone(), wanted });
        match (&self.input, value) {
            (Input::Text { length, format, .. }, Value::String(text)) => {
                let count = u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
                let broken = length.broken(count, ["is shorter than", "is longer than"]);
                self.bound(broken).or_else(|| match format {
                    Some(format) => formats::fault(*format, text).and_then(kind),
                    None => None,
                })
            }
            (Input::One { options, .. }, Value::String(text)) => self.chosen(options, [text]),
            (Input::Some { options, count, .. }, Value::StringArray(texts)) => {
                let broken =
                    count.broken(texts.len() as u64, ["has fewer options than", "has more options than"]);
                self.bound(broken).or_else(|| self.chosen(options, texts))
            }
            (Input::Number { range, .. }, Value::Number(number)) if number.is_finite() => {
                self.bound(range.broken(*number, NUMBERS))
            }
            #[expect(
                clippy::cast_precision_loss,
                reason = "a bound that is a fraction knows no finer difference"
            )]
            (Input::Number { range, .. }, Value::Integer(number)) => {
                self.bound(range.broken(*number as f64, NUMBERS))
            }
            (Input::Integer { range, .. }, Value::Integer(number)) => {
                self.bound(range.broken(*number, NUMBERS))
            }
            (Input::Flag { .. }, Value::Boolean(_)) => None,
            (Input::Text { .. }, _) => kind("a text"),
            (Input::One { .. }, _) => kind("one of the options"),
            (Input::Some { .. }, _) => kind("a list of options"),
            (Input::Number { .. }, _) => kind("a number"),
            (Input::Integer { .. }, _) => kind("a whole number"),
            (Input::Flag { .. }, _) => kind("yes or no"),
            (Input::Unknown { .. }, _) => kind("of a type that is known here"),
        }
    }

    fn bound(&self, broken: Option<(&'static str, String)>) -> Option<Fault> {
        broken.map(|(what, bound)| Fault::Bound { name: self.name.clone(), what, bound })
    }

    fn chosen<'a>(&self, options: &[Choice], chosen: impl IntoIterator<Item = &'a String>) -> Option<Fault> {
        let offered: BTreeSet<&str> = options.iter().map(|option| option.value.as_str()).collect();
        let mut seen = BTreeSet::new();
        chosen.into_iter().find_map(|value| {
            if !offered.contains(value.as_str()) {
                Some(Fault::NoOption(self.name.clone()))
            } else {
                (!seen.insert(value)).then(|| Fault::Twice(self.name.clone()))
            }
        })
    }
}

/// How a number breaks its bounds.
const NUMBERS: [&str; 2] = ["is less than", "is more than"];

impl<T: PartialOrd + ToString> Bounds<T> {
    /// Returns which bound a value breaks, by the words for the two.
    fn broken(&self, value: T, [least, most]: [&'static str; 2]) -> Option<(&'static str, String)> {
        match (&self.least, &self.most) {
            (Some(bound), _) if value < *bound => Some((least, bound.to_string())),
            (_, Some(bound)) if value > *bound => Some((most, bound.to_string())),
            _ => None,
        }
    }
}

impl Input {
    fn default(&self) -> Option<Value> {
        match self {
            Self::Text { default, .. } | Self::One { default, .. } => default.clone().map(Value::String),
            Self::Some { default, .. } => default.clone().map(Value::StringArray),
            Self::Number { default, .. } => default.map(Value::Number),
            Self::Integer { default, .. } => default.map(Value::Integer),
            Self::Flag { default } => default.map(Value::Boolean),
            Self::Unknown { .. } => None,
        }
    }
}

fn text_input(text: &StringPropertySchema) -> Input {
    let default = text.default.clone();
    match (&text.one_of, &text.enum_values) {
        (Some(options), _) => Input::One { options: options.iter().map(titled).collect(), default },
        (None, Some(values)) => {
            Input::One { options: values.iter().map(|value| plain(value)).collect(), default }
        }
        (None, None) => Input::Text {
            length: Bounds { least: text.min_length, most: text.max_length },
            pattern: text.pattern.clone(),
            format: text.format,
            default,
        },
    }
}

fn list_input(list: &MultiSelectPropertySchema) -> Input {
    let options = match &list.items {
        MultiSelectItems::String(items) => items.values.iter().map(|value| plain(value)).collect(),
        MultiSelectItems::Titled(items) => items.options.iter().map(titled).collect(),
        MultiSelectItems::Other(items) => {
            return Input::Unknown { kind: format!("list of {}", items.type_) };
        }
        _ => return Input::Unknown { kind: "new list".to_owned() },
    };
    let count = Bounds { least: list.min_items, most: list.max_items };
    Input::Some { options, count, default: list.default.clone() }
}

fn plain(value: &str) -> Choice {
    Choice { value: value.to_owned(), title: value.to_owned(), description: None }
}

fn titled(option: &EnumOption) -> Choice {
    let EnumOption { value, title, description, .. } = option;
    Choice { value: value.clone(), title: title.clone(), description: description.clone() }
}

#[cfg(test)]
mod tests;
