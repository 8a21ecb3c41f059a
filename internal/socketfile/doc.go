// Package socketfile makes Unix stream sockets that a daemon owns by name: the
// file that a dead daemon left is replaced, that of a live one is not, and a
// file that somebody else has put there since is never removed.
//
// A lock file beside the socket says who the path belongs to, since connect
// alone cannot tell a daemon that starts from one that died. The package
// imports the standard library only.
package socketfile
