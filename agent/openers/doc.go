// Package openers makes the fabrics of a daemon from its configuration. It is the
// only room of agent that knows fabrics by name.
//
// An Opener is one kind of fabric: the keys of its table [fabric.NAME], and a
// function that opens one. The files of one opener begin with its kind, the keys are
// next to it, and so is what it looks at on a host. A program that brings a fabric of its own hands its opener to the daemon in
// agent.Options.Openers, and its keys to config.Load by Kinds. docs/adding-a-fabric.md
// is the recipe.
//
// The link is opened in every daemon, since it serves peers whether a route names it
// or not.
//
// It may import config, finding, fabric, blocks, wire and the adapters. It must never start
// what outlives the fabric that it returns: Close of the fabric ends everything.
package openers
