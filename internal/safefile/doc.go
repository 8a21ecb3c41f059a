// Package safefile writes files whole or not at all, and never through a file
// that is none: a device node, a pipe, a socket, a symbolic link. Every file that
// a daemon or the command line leaves behind is written here: ports, identity,
// certificates, reports. Files that somebody names as input are opened here too.
//
// It may import the standard library only. It must never write through the last part of
// a path, nor leave a temporary file behind.
package safefile
