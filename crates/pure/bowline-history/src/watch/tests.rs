//! Tests of watch decisions.
