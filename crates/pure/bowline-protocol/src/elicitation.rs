//! Elicitations as data for a front end: a form to fill in or a URL to visit.
//!
//! A [`Form`] lists the fields, provides their defaults, and checks the input before it is sent. An [`ElicitationUrl`]
//! shows where a URL leads and what is suspicious about it, before the user agrees to open it. All texts are the
//! agent's; [`bowline_text::display`] makes them safe to show.

use std::collections::{BTreeMap, BTreeSet};

use agent_client_protocol_schema::v1::{
    ElicitationContentValue as Value, ElicitationPropertySchema as Property, ElicitationSchema, EnumOption,
    MultiSelectItems, MultiSelectPropertySchema, StringFormat, StringPropertySchema,
};

use bowline_text::display::quote;

mod formats;
mod url;

pub use url::{ElicitationUrl, ElicitationUrlError, MAX_URL_BYTES, UrlSuspicion};

/// The maximum number of fields in a form. A longer one would wear the user down.
pub const MAX_FIELDS: usize = 100;

/// The maximum number of options in one field.
pub const MAX_OPTIONS: usize = 1000;

/// The filled-in values, by field name.
pub type FormContent = BTreeMap<String, Value>;

/// A form, ready to be displayed.
#[derive(Debug, Clone, PartialEq)]
pub struct Form {
    /// Its title.
    pub title: Option<String>,
    /// Its purpose.
    pub description: Option<String>,
    /// Its fields: the required ones in the agent's order, then the others by name. The protocol's types preserve no
    /// other order.
    pub fields: Vec<FormField>,
}

/// A field of a form.
#[derive(Debug, Clone, PartialEq)]
pub struct FormField {
    /// Its name in the response.
    pub name: String,
    /// Its display name.
    pub title: Option<String>,
    /// Its purpose.
    pub description: Option<String>,
    /// Whether the form is incomplete without it.
    pub required: bool,
    /// The input it accepts.
    pub input: FieldInput,
}

/// The kind of input that a field accepts.
#[derive(Debug, Clone, PartialEq)]
pub enum FieldInput {
    /// A text.
    Text {
        /// The allowed length, in characters.
        length: ValueBounds<u32>,
        /// The regular expression that the text must match. The agent checks it: regex dialects differ too much to do
        /// so here.
        pattern: Option<String>,
        /// The format of the text.
        format: Option<StringFormat>,
        /// The default.
        default: Option<String>,
    },
    /// One of several options.
    SingleSelect {
        /// The options.
        options: Vec<SelectOption>,
        /// The default.
        default: Option<String>,
    },
    /// Several options, each at most once.
    MultiSelect {
        /// The options.
        options: Vec<SelectOption>,
        /// The allowed number of choices.
        count: ValueBounds<u64>,
        /// The default.
        default: Option<Vec<String>>,
    },
    /// A number.
    Number {
        /// The allowed range.
        range: ValueBounds<f64>,
        /// The default.
        default: Option<f64>,
    },
    /// An integer.
    Integer {
        /// The allowed range.
        range: ValueBounds<i64>,
        /// The default.
        default: Option<i64>,
    },
    /// A yes-or-no choice.
    Boolean {
        /// The default.
        default: Option<bool>,
    },
    /// An unknown kind. It cannot be filled in and must not be shown as if it could.
    Unknown {
        /// The agent's name for the kind.
        kind: String,
    },
}

/// An inclusive range.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ValueBounds<T> {
    /// The minimum.
    pub min: Option<T>,
    /// The maximum.
    pub max: Option<T>,
}

/// An option of a selection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectOption {
    /// The value in the response.
    pub value: String,
    /// Its display name; the value if the agent gives none.
    pub title: String,
    /// Its meaning.
    pub description: Option<String>,
}

/// Why a form cannot be displayed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormError {
    /// It has too many fields.
    #[error("the form has {0} fields, at most {MAX_FIELDS} are shown: ask for less")]
    TooManyFields(usize),
    /// A field has too many options.
    #[error("field {} has {options} options, at most {MAX_OPTIONS} are shown: offer less", quote(.name))]
    TooManyOptions {
        /// The field.
        name: String,
        /// The number of options.
        options: usize,
    },
    /// A required field is of an unknown type.
    #[error("field {} is required, and its type {} is not known here", quote(.name), quote(.kind))]
    UnknownType {
        /// The field.
        name: String,
        /// Its type.
        kind: String,
    },
    /// A required field is not described.
    #[error("field {} is required, and is not among the properties", quote(.0))]
    NotDescribed(String),
}

/// An error in the filled-in values.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum FormContentError {
    /// A required value is missing.
    #[error("{} is required", quote(.0))]
    Missing(String),
    /// A value has no field.
    #[error("{} was not asked for", quote(.0))]
    UnknownField(String),
    /// A value has the wrong type.
    #[error("{} is not {expected}", quote(.name))]
    WrongType {
        /// The field.
        name: String,
        /// The expected type.
        expected: &'static str,
    },
    /// A value is out of bounds.
    #[error("{} {relation} {bound}", quote(.name))]
    OutOfBounds {
        /// The field.
        name: String,
        /// The relation to the violated bound, in words.
        relation: &'static str,
        /// The bound.
        bound: String,
    },
    /// A value is not one of the options.
    #[error("{} is none of the options", quote(.0))]
    UnknownOption(String),
    /// An option is chosen twice.
    #[error("{} has an option twice", quote(.0))]
    DuplicateOption(String),
}

impl Form {
    /// Returns the form that an agent's schema describes.
    ///
    /// # Errors
    /// Returns why it cannot be displayed.
    pub fn from_schema(schema: &ElicitationSchema) -> Result<Self, FormError> {
        if schema.properties.len() > MAX_FIELDS {
            return Err(FormError::TooManyFields(schema.properties.len()));
        }
        let mut required = BTreeSet::new();
        let mut fields = Vec::new();
        for name in schema.required.iter().flatten() {
            let property =
                schema.properties.get(name).ok_or_else(|| FormError::NotDescribed(name.clone()))?;
            if required.insert(name) {
                fields.push(FormField::from_property(name, property, true));
            }
        }
        let rest = schema.properties.iter().filter(|(name, _)| !required.contains(name));
        fields.extend(rest.map(|(name, property)| FormField::from_property(name, property, false)));
        if let Some(error) = fields.iter().find_map(FormField::form_error) {
            return Err(error);
        }
        Ok(Self { title: schema.title.clone(), description: schema.description.clone(), fields })
    }

    /// Returns the initial values: the defaults that the form itself accepts.
    #[must_use]
    pub fn defaults(&self) -> FormContent {
        let default = |field: &FormField| {
            let value = field.input.default_value()?;
            field.check_value(&value).is_none().then(|| (field.name.clone(), value))
        };
        self.fields.iter().filter_map(default).collect()
    }

    /// Returns the errors in the filled-in values; empty if they may be sent. Patterns are not checked.
    #[must_use]
    pub fn check(&self, content: &FormContent) -> Vec<FormContentError> {
        let check_field = |field: &FormField| match content.get(&field.name) {
            Some(value) => field.check_value(value),
            None => field.required.then(|| FormContentError::Missing(field.name.clone())),
        };
        let known: BTreeSet<&str> = self.fields.iter().map(|field| field.name.as_str()).collect();
        let unknown = content.keys().filter(|name| !known.contains(name.as_str()));
        let errors = self.fields.iter().filter_map(check_field);
        errors.chain(unknown.map(|name| FormContentError::UnknownField(name.clone()))).collect()
    }
}

impl FormField {
    fn from_property(name: &str, property: &Property, required: bool) -> Self {
        let (title, description, input) = match property {
            Property::String(text) => (text.title.clone(), text.description.clone(), text_input(text)),
            Property::Number(number) => {
                let range = ValueBounds { min: number.minimum, max: number.maximum };
                let input = FieldInput::Number { range, default: number.default };
                (number.title.clone(), number.description.clone(), input)
            }
            Property::Integer(number) => {
                let range = ValueBounds { min: number.minimum, max: number.maximum };
                let input = FieldInput::Integer { range, default: number.default };
                (number.title.clone(), number.description.clone(), input)
            }
            Property::Boolean(flag) => {
                (flag.title.clone(), flag.description.clone(), FieldInput::Boolean { default: flag.default })
            }
            Property::Array(list) => (list.title.clone(), list.description.clone(), list_input(list)),
            Property::Other(other) => (None, None, FieldInput::Unknown { kind: other.type_.clone() }),
            // A type added by a later protocol is treated like an unknown one.
            _ => (None, None, FieldInput::Unknown { kind: "new".to_owned() }),
        };
        Self { name: name.to_owned(), title, description, required, input }
    }

    /// Returns why the field cannot be displayed.
    fn form_error(&self) -> Option<FormError> {
        let name = self.name.clone();
        match &self.input {
            FieldInput::SingleSelect { options, .. } | FieldInput::MultiSelect { options, .. }
                if options.len() > MAX_OPTIONS =>
            {
                Some(FormError::TooManyOptions { name, options: options.len() })
            }
            FieldInput::Unknown { kind } if self.required => {
                Some(FormError::UnknownType { name, kind: kind.clone() })
            }
            _ => None,
        }
    }

    /// Returns the error in a value.
    fn check_value(&self, value: &Value) -> Option<FormContentError> {
        let wrong_type = |expected| Some(FormContentError::WrongType { name: self.name.clone(), expected });
        match (&self.input, value) {
            (FieldInput::Text { length, format, .. }, Value::String(text)) => {
                let count = u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
                let broken = length.broken_bound(count, ["is shorter than", "is longer than"]);
                self.bound_error(broken).or_else(|| match format {
                    Some(format) => formats::check_format(*format, text).and_then(wrong_type),
                    None => None,
                })
            }
            (FieldInput::SingleSelect { options, .. }, Value::String(text)) => {
                self.check_options(options, [text])
            }
            (FieldInput::MultiSelect { options, count, .. }, Value::StringArray(texts)) => {
                let broken = count
                    .broken_bound(texts.len() as u64, ["has fewer options than", "has more options than"]);
                self.bound_error(broken).or_else(|| self.check_options(options, texts))
            }
            (FieldInput::Number { range, .. }, Value::Number(number)) if number.is_finite() => {
                self.bound_error(range.broken_bound(*number, NUMBER_RELATIONS))
            }
            #[expect(
                clippy::cast_precision_loss,
                reason = "a bound that is a fraction knows no finer difference"
            )]
            (FieldInput::Number { range, .. }, Value::Integer(number)) => {
                self.bound_error(range.broken_bound(*number as f64, NUMBER_RELATIONS))
            }
            (FieldInput::Integer { range, .. }, Value::Integer(number)) => {
                self.bound_error(range.broken_bound(*number, NUMBER_RELATIONS))
            }
            (FieldInput::Boolean { .. }, Value::Boolean(_)) => None,
            (FieldInput::Text { .. }, _) => wrong_type("a text"),
            (FieldInput::SingleSelect { .. }, _) => wrong_type("one of the options"),
            (FieldInput::MultiSelect { .. }, _) => wrong_type("a list of options"),
            (FieldInput::Number { .. }, _) => wrong_type("a number"),
            (FieldInput::Integer { .. }, _) => wrong_type("a whole number"),
            (FieldInput::Boolean { .. }, _) => wrong_type("yes or no"),
            (FieldInput::Unknown { .. }, _) => wrong_type("of a type that is known here"),
        }
    }

    fn bound_error(&self, broken: Option<(&'static str, String)>) -> Option<FormContentError> {
        broken.map(|(relation, bound)| FormContentError::OutOfBounds {
            name: self.name.clone(),
            relation,
            bound,
        })
    }

    fn check_options<'a>(
        &self,
        options: &[SelectOption],
        chosen: impl IntoIterator<Item = &'a String>,
    ) -> Option<FormContentError> {
        let offered: BTreeSet<&str> = options.iter().map(|option| option.value.as_str()).collect();
        let mut seen = BTreeSet::new();
        chosen.into_iter().find_map(|value| {
            if !offered.contains(value.as_str()) {
                Some(FormContentError::UnknownOption(self.name.clone()))
            } else {
                (!seen.insert(value)).then(|| FormContentError::DuplicateOption(self.name.clone()))
            }
        })
    }
}

/// The relations of a number to its violated bound.
const NUMBER_RELATIONS: [&str; 2] = ["is less than", "is more than"];

impl<T: PartialOrd + ToString> ValueBounds<T> {
    /// Returns the bound that a value violates, with the matching relation.
    fn broken_bound(&self, value: T, [least, most]: [&'static str; 2]) -> Option<(&'static str, String)> {
        match (&self.min, &self.max) {
            (Some(bound), _) if value < *bound => Some((least, bound.to_string())),
            (_, Some(bound)) if value > *bound => Some((most, bound.to_string())),
            _ => None,
        }
    }
}

impl FieldInput {
    fn default_value(&self) -> Option<Value> {
        match self {
            Self::Text { default, .. } | Self::SingleSelect { default, .. } => {
                default.clone().map(Value::String)
            }
            Self::MultiSelect { default, .. } => default.clone().map(Value::StringArray),
            Self::Number { default, .. } => default.map(Value::Number),
            Self::Integer { default, .. } => default.map(Value::Integer),
            Self::Boolean { default } => default.map(Value::Boolean),
            Self::Unknown { .. } => None,
        }
    }
}

fn text_input(text: &StringPropertySchema) -> FieldInput {
    let default = text.default.clone();
    match (&text.one_of, &text.enum_values) {
        (Some(options), _) => {
            FieldInput::SingleSelect { options: options.iter().map(titled_option).collect(), default }
        }
        (None, Some(values)) => FieldInput::SingleSelect {
            options: values.iter().map(|value| untitled_option(value)).collect(),
            default,
        },
        (None, None) => FieldInput::Text {
            length: ValueBounds { min: text.min_length, max: text.max_length },
            pattern: text.pattern.clone(),
            format: text.format,
            default,
        },
    }
}

fn list_input(list: &MultiSelectPropertySchema) -> FieldInput {
    let options = match &list.items {
        MultiSelectItems::String(items) => items.values.iter().map(|value| untitled_option(value)).collect(),
        MultiSelectItems::Titled(items) => items.options.iter().map(titled_option).collect(),
        MultiSelectItems::Other(items) => {
            return FieldInput::Unknown { kind: format!("list of {}", items.type_) };
        }
        _ => return FieldInput::Unknown { kind: "new list".to_owned() },
    };
    let count = ValueBounds { min: list.min_items, max: list.max_items };
    FieldInput::MultiSelect { options, count, default: list.default.clone() }
}

fn untitled_option(value: &str) -> SelectOption {
    SelectOption { value: value.to_owned(), title: value.to_owned(), description: None }
}

fn titled_option(option: &EnumOption) -> SelectOption {
    let EnumOption { value, title, description, .. } = option;
    SelectOption { value: value.clone(), title: title.clone(), description: description.clone() }
}

#[cfg(test)]
mod tests;
