package relay

import "github.com/prometheus/client_golang/prometheus"

// Metrics are the relay's Prometheus collectors.
type Metrics struct{}

// NewMetrics registers the collectors with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics { panic("todo") }
