// Package docs holds no code, only the tests of what users read: tables are
// whole, links lead somewhere, words are plain, and the commands of README and
// docs/examples do what the text says. docs/cli.md and docs/metrics.md are made
// from help and HELP texts, so these are tested with them.
package docs
