// Command mrdn is the operator's command line of Meridian.
//
// Each group of commands is a file. A command makes a result, which is a value;
// output.go renders it as a table, JSON or YAML, and nothing else writes to
// standard output, but for chat, which streams, and llama up, which does not end. A failure says in one line what went wrong, with a hint and
// an exit code (failure.go).
//
// It holds flags and wiring only: what a command does is in agent/client,
// agent/config, agent/finding, agent/openai and bench. The reference docs/cli.md is made from the
// command tree by a test.
//
// It may import agent, its client, config, finding, openai and llama's pair and
// fetch, bench, conformance, wire, cobra, yaml and x/term. A command must never keep state between runs, or change a block without being marked as
// writing.
package main
