package outbox

// State is a delivery's state.
type State string

const (
	Pending     State = "pending"
	InClaim     State = "claimed"
	Delivered   State = "delivered"
	Quarantined State = "quarantined"
)
