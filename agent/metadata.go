package agent

import (
	"context"
	"time"

	"meridian/agent/adminpb"
	"meridian/fabric"
)

// maxEntries is how many entries of a fabric are shown.
const maxEntries = 4096

// ListMetadata lists what others keep at this daemon's hubs.
func (s *adminServer) ListMetadata(_ context.Context, req *adminpb.ListMetadataRequest) (*adminpb.ListMetadataResponse, error) {
	out := &adminpb.ListMetadataResponse{}
	var hubs []string
	found := false
	for name, f := range s.a.whole {
		m, ok := f.(fabric.MetadataServer)
		if !ok {
			continue
		}
		hubs = append(hubs, name)
		if req.GetFabric() != "" && req.GetFabric() != name {
			continue
		}
		found = true
		all := m.Entries()
		out.Count += uint32(len(all))
		for _, e := range all[:min(len(all), maxEntries)] {
			out.Entries = append(out.Entries, &adminpb.Metadata{
				Fabric: name, Name: e.Name, Label: e.Label, From: e.From, Pid: e.PID, AgeMs: uint64(max(time.Since(e.Since), 0) / time.Millisecond), Bytes: uint64(e.Bytes), Alive: e.Alive,
			})
		}
	}
	if req.GetFabric() != "" && !found {
		return nil, unknownName("fabric with metadata", req.GetFabric(), hubs)
	}
	return out, nil
}
