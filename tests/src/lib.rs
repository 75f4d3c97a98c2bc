//! Nothing: the tests are in `e2e`.
