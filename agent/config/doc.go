// Package config reads the daemon's configuration: one TOML file, the
// MERIDIAN_* environment and the flags, in that order of rising precedence,
// above the defaults.
//
// The schema (schema_seed.go, schema_ours.go, schema_quota.go) is the one list of
// keys. A table that a file has once is in tables; one that it can have many times,
// [model.NAME] or [[route]], is a form (tables.go). The keys of a fabric's table are
// declared by its opener (fabric.go, fixed.go, keys.go), outside of this package. The
// defaults, the range checks, the names of the variables, the origins that
// `mrdn config show` prints and docs/config.md all come from it, so a key that
// is not in the schema does not exist. An unknown key is an error, in the file
// and in the environment, with the nearest known name as a suggestion.
//
// Load reports every problem it finds, not just the first, each with the file
// and line or the variable it came from. All of them match wire.CodeConfig.
//
// Beyond single keys it checks what keys say together (check.go): a listener
// beyond loopback needs TLS or an explicit insecure = true, a fabric that is
// enabled must be one that this build has, names must be unique and known.
//
// It may import the standard library, BurntSushi/toml, wire, internal/httpguard,
// internal/safefile and agent/client (for the places of the sockets). It must never
// print a Secret, touch the network, or start anything.
package config
