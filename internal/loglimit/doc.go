// Package loglimit bounds how many log lines anybody can cause.
//
// A Handler stands in front of a program's slog.Handler, at its root, so that
// every record of every room passes it and no room has to think of it. Records
// are of one kind when they have the same level, message and subject, which is the
// attribute "peer" or "path"; WithKind names a kind where that does not tell
// enough apart. Of each kind a few records are written in each Every; the rest is
// counted, and one record then says "and N more". The number of kinds is bounded: where too many are
// alive at once, all further ones of a level count as one kind.
//
// Records below Info are not limited: an operator who asks for them wants them all.
//
// The package may import the standard library only.
package loglimit
