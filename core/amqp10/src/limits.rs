//! Every limit of the codec and the engine in one struct. It only holds numbers; who enforces one says so at the place.

/// Limits on what a peer can make us hold or walk through.
///
/// The defaults are the broker's; a client or a test changes the fields it wants to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest frame before both `open`s were exchanged, `open` included, in bytes.
    ///
    //= amqp10 2.4.1 (the standard says 512 for what is sent; we take more, since real `open`s are larger)
    pub open_frame_bytes: u32,
    /// Largest frame afterwards, in bytes: what our `open` tells as `max-frame-size`.
    pub frame_bytes: u32,
    /// Largest SASL frame, in bytes (bearer tokens are long).
    //= amqp10 5.3.1 (512 in the standard)
    pub sasl_frame_bytes: u32,
    /// SASL challenges of one login.
    pub sasl_rounds: u8,
    /// Nesting of a value that the broker looks into; at most [`Limits::MAX_DEPTH`].
    pub parsed_depth: u8,
    /// Nesting of a value that is only passed on; at most [`Limits::MAX_DEPTH`].
    pub skipped_depth: u8,
    /// Elements of an array whose elements take no bytes: the only count that costs the sender nothing.
    pub zero_width_elements: u32,
    /// Bytes of a message before its body (header to application-properties).
    pub message_head_bytes: u32,
    /// Highest channel number we take: what our `open` tells as `channel-max`.
    pub channel_max: u16,
    /// Highest handle we take: what our `begin` tells as `handle-max`.
    pub handle_max: u32,
    /// Sessions of one connection, those of both sides and those not yet ended by both included.
    pub sessions: u32,
    /// Links of one connection, those not yet detached by both sides included.
    pub links: u32,
    /// Length of a link's name, in bytes; a longer one is refused.
    pub link_name_bytes: usize,
    /// Deliveries of ours that the peer has not settled, per session: past it nothing is sendable. (What the peer
    /// sends is bounded by the credit we give.)
    pub unsettled: u32,
    /// Bytes of output not yet written, past which nothing is sendable.
    pub output_bytes: usize,
    /// Bytes held unread while a login or an `open` is being decided.
    pub held_bytes: usize,
}

impl Limits {
    /// The deepest nesting that any setting allows; the size of the walk's stack.
    pub const MAX_DEPTH: u8 = 32;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            open_frame_bytes: 8 * 1024,
            frame_bytes: 64 * 1024,
            sasl_frame_bytes: 16 * 1024,
            sasl_rounds: 8,
            parsed_depth: 16,
            skipped_depth: 32,
            zero_width_elements: 1024,
            message_head_bytes: 1024 * 1024,
            channel_max: 1023,
            handle_max: 65_535,
            sessions: 1024,
            links: 65_536,
            link_name_bytes: 1024,
            unsettled: 65_536,
            output_bytes: 1024 * 1024,
            held_bytes: 32 * 1024,
        }
    }
}
