// Command meridiand is the Meridian daemon: flags and wiring. What it does is
// in package agent, what it reads is in package agent/config.
//
// Exit codes: 0 after a stop by signal, 1 when the configuration is not valid
// or the daemon cannot run, 2 for a wrong command line.
//
// It may import agent, agent/config and cobra. It must never hold a default or
// a check of its own: those are the schema's.
package main
