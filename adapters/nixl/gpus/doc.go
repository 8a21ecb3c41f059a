// Package gpus asks NVIDIA's driver which GPUs a host has, by its library libnvidia-ml
// (NVML), which go-nvml opens when it is asked. A build without CGO has no go-nvml, and
// says so.
//
// The library's code runs in the process that calls List: that is meridian-ffi, and never
// the daemon. A driver may hang, so the caller is a process of which nothing else is
// asked.
//
// It may import the control messages and go-nvml.
package gpus
