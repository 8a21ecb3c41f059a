// Package handshake is the conversation by which Mooncake's engines get to know each
// other: over TCP, one request and one answer a connection.
//
//	frame.go    a length, a type, a text in JSON
//	message.go  the four requests and their answers
//	server.go   the daemon's side: descriptor, notifies, probes
//	client.go   the asking side
//
// # A request, step by step
//
//	client                          server
//	length, type, request  ------>          within RequestTime
//	                       <------  length, type, answer
//	                       <------  FIN
//	FIN                    ------>          within CloseTime
//
// The server has a goroutine for each connection, so that a silent client delays
// nobody. Requests of the old framing, which have no type byte, are answered in it.
// A frame that is wrong ends its connection without an answer, as Mooncake does.
//
// The package may import segment, internal/door and wire. It must never act on what a
// request says about its sender: names in it prove nothing.
package handshake
