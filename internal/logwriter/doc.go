// Package logwriter writes log lines to a pipe, a file or a terminal that may
// fail or block at any time, and never lets that reach the caller: a line that
// cannot be written is counted and dropped.
//
// It may import the standard library only.
package logwriter
