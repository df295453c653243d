//! Collections in pages of the agent's own memory, which the host's allocator never sees.

pub(in crate::sampler) mod page_map;
pub(in crate::sampler) mod page_queue;
pub(in crate::sampler) mod page_trie;
