package outbox_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/outbox-relay/relay/outbox"
)

func placed() outbox.Event {
	return outbox.Event{
		Tenant: "acme", Stream: "orders",
		ID: "order-17-placed", Source: "/shop/orders", Type: "com.example.order.placed",
		Time:         time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		ContentType:  "application/json",
		PartitionKey: "order-17",
		Extensions:   map[string]outbox.Value{"priority": outbox.Int(3)},
		Data:         outbox.JSON([]byte(`{"total": 12.50, "order": 17}`)),
	}
}

// An event is a plain struct. Optional fields that stay zero are absent attributes.
func ExampleEvent() {
	e := outbox.Event{
		Tenant: "acme", Stream: "orders",
		ID: "order-17-placed", Source: "/shop/orders", Type: "com.example.order.placed",
		// A time is exact to the microsecond: cut what the clock gives beyond it.
		Time:        time.Now().Truncate(time.Microsecond),
		ContentType: "application/json",
		Data:        outbox.JSON([]byte(`{"total": 12.50}`)),
		Extensions: map[string]outbox.Value{
			"priority":    outbox.Int(3),
			"traceparent": outbox.String("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
		},
	}
	fmt.Println(e.Validate())
	// Output: <nil>
}

// The error names the field and the rule; empty and too long are different rules.
func ExampleEvent_Validate() {
	e := placed()
	e.Subject = "line 1\nline 2"

	var invalid *outbox.InvalidEventError
	if err := e.Validate(); errors.As(err, &invalid) {
		fmt.Println(invalid.Field, invalid.Rule)
		fmt.Println(err)
	}
	// Output:
	// subject format
	// invalid event: subject: format: control character U+000A at byte 6
}

// The structured form is the same bytes for the same event, whoever stored it.
func ExampleEvent_AppendStructured() {
	e := placed()
	body, err := e.AppendStructured(nil)
	fmt.Println(string(body), err)
	// Output: {"specversion":"1.0","id":"order-17-placed","source":"/shop/orders","type":"com.example.order.placed","time":"2026-01-02T03:04:05Z","datacontenttype":"application/json","partitionkey":"order-17","priority":3,"data":{"order":17,"total":12.50}} <nil>
}

// The binary form is the data as it is, and these attributes as headers.
func ExampleEvent_AppendAttributes() {
	e := placed()
	e.Subject = "café 100%"
	for _, a := range e.AppendAttributes(nil) {
		fmt.Printf("ce-%s: %s\n", a.Name, a.Value)
	}
	// Output:
	// ce-specversion: 1.0
	// ce-id: order-17-placed
	// ce-source: /shop/orders
	// ce-type: com.example.order.placed
	// ce-subject: caf%C3%A9%20100%25
	// ce-time: 2026-01-02T03:04:05Z
	// ce-partitionkey: order-17
	// ce-priority: 3
	// ce-datacontenttype: application/json
}

// The id under which a broker removes duplicates depends on tenant, source and id
// only.
func ExampleEvent_MessageID() {
	a, b := placed(), placed()
	b.Data = outbox.Data{}
	fmt.Println(a.MessageID() == b.MessageID())
	b.Tenant = "other"
	fmt.Println(a.MessageID() == b.MessageID(), a.IsolatedMessageID() == b.IsolatedMessageID())
	// Output:
	// true
	// false true
}

// Absent data, empty data and JSON null are three different things.
func ExampleData() {
	for _, d := range []outbox.Data{{}, outbox.Binary(nil), outbox.JSON([]byte("null"))} {
		e := placed()
		e.Data = d
		body, _ := e.AppendStructured(nil)
		fmt.Println(string(body[len(body)-30:]))
	}
	// Output:
	// nkey":"order-17","priority":3}
	// "priority":3,"data_base64":""}
	// -17","priority":3,"data":null}
}

// A Value keeps its type beside its text.
func ExampleParseValue() {
	t, _ := outbox.ParseValueType("timestamp")
	v, err := outbox.ParseValue(t, "2026-01-02T03:04:05+01:00")
	fmt.Println(v.Type(), v.Text(), err)
	_, err = outbox.ParseValue(outbox.TypeInteger, "2147483648")
	fmt.Println(err)
	// Output:
	// timestamp 2026-01-02T03:04:05+01:00 <nil>
	// invalid event: value: format: "2147483648" is no integer
}
