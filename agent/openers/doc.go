// Package openers makes the fabrics of a daemon from its configuration. It is the
// only room of agent that knows fabrics by name.
//
// An Opener is one kind of fabric: the keys of its table [fabric.NAME], and a
// function that opens one. A file of this package is one opener, with the keys next
// to it. A program that brings a fabric of its own hands its opener to the daemon in
// agent.Options.Openers, and its keys to config.Load by Kinds. docs/adding-a-fabric.md
// is the recipe.
//
// The link is opened in every daemon, since it serves peers whether a route names it
// or not.
//
// It may import config, fabric, blocks, wire and the adapters. It must never start
// what outlives the fabric that it returns: Close of the fabric ends everything.
package openers
