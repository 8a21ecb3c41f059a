// Command meridian-ffi loads foreign libraries for meridiand, which starts it: they may
// end their process, and the daemon must go on. It is not for use by hand.
//
// It may import adapters/nixl/helper. It must never hold anything that is not lost
// without harm when it dies.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"meridian/adapters/nixl/helper"
)

// socket is the descriptor of the daemon's socket.
const socket = 3

func main() {
	// A terminal's signals are for the daemon, which ends this process by its socket.
	signal.Ignore(syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE)
	if len(os.Args) != 2 || os.Args[1] != "nixl" {
		fmt.Fprintln(os.Stderr, "meridian-ffi loads libraries for meridiand, which starts it: meridian-ffi nixl, with a socket as descriptor 3")
		os.Exit(2)
	}
	err := helper.DieBySignals()
	if err == nil {
		err = helper.Run(os.NewFile(socket, "control"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
