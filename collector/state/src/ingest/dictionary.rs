//! Dictionaries: the tables that an agent adds to its session. A large one takes a while, in which others
//! use the tree and the session. It is therefore applied in slices, each under their locks.
//!
//! An invalid entry is replaced and counted ([`InvalidEntries`]). If the whole dictionary were rejected, so
//! would be every later flush: their nodes follow on those of the dictionary.

use std::borrow::Cow;
use std::sync::Arc;
use std::thread;

use profiler_core::limits::MESSAGE_BYTES_TARGET;
use profiler_core::wire::v1::{self, collector_message::Kind};
use profiler_core::wire::{InvalidEntries, Marks, Tables, Translation, dictionary_since};
use profiler_core::{CallTrie, SymbolTable, Timestamp};

use super::rejection::{note_rejection, refuse};
use super::{Attachment, Ingest, StaleStream};
use crate::CollectorState;
use crate::tree::DictionaryError;
use base::limits::DICTIONARY_SLICE_ENTRIES;
use base::sync::{read, write};
use shares::{Account, Quota};

/// A dictionary that is applied in slices.
#[derive(Debug)]
pub struct PendingDictionary<'a> {
    message: Cow<'a, v1::Dictionary>,
    /// Number of entries that the session held after the last slice; `None` before the first.
    applied: Option<Marks>,
    invalid: Option<InvalidEntries>,
    /// Whether its sender may add the names that it has, which is asked once there are new ones.
    is_admitted: bool,
}

/// The outcome of a slice.
#[derive(Clone, PartialEq, Debug)]
pub enum SliceOutcome {
    More,
    Done,
    Refused(Kind),
}

impl<'a> PendingDictionary<'a> {
    pub fn new(message: &'a v1::Dictionary) -> PendingDictionary<'a> {
        PendingDictionary {
            message: Cow::Borrowed(message),
            applied: None,
            invalid: None,
            is_admitted: false,
        }
    }

    /// Applies the next slice. Returns whether there are more. Names and stacks of which the tree has all, as
    /// those of the tenth process of a program, need it for reading only. Past the account's quotas, new names
    /// and new stacks become `[overflow]`.
    fn apply(
        &mut self,
        state: &CollectorState,
        translation: &mut Translation,
        account: &Account,
    ) -> Result<bool, DictionaryError> {
        if self.applied != Some(translation.marks()) {
            self.invalid = translation.check(&self.message, &read(&state.tree).trie)?;
            self.is_admitted = false;
        }
        let entries_max = DICTIONARY_SLICE_ENTRIES;
        let known = read(&state.tree).apply_known(&self.message, translation, entries_max)?;
        self.applied = Some(translation.marks());
        let has_more = translation.lacks(&self.message)?;
        if known == entries_max || !has_more {
            return Ok(has_more);
        }
        self.admit(state, account)?;
        let mut tree = write(&state.tree);
        let nodes_left = account.nodes_left(tree.free_nodes());
        let applied =
            tree.apply_slice(&self.message, translation, entries_max - known, nodes_left)?;
        drop(tree);
        account.note_growth(applied.nodes, applied.symbol_bytes);
        state.note_invalid_build_ids(applied.invalid_build_ids, account);
        if applied.overflowed && applied.nodes >= nodes_left {
            account.note_refusal(Quota::Nodes);
        }
        self.applied = Some(translation.marks());
        Ok(applied.has_more)
    }

    /// Replaces the new names if the sender may not add any.
    fn admit(&mut self, state: &CollectorState, account: &Account) -> Result<(), DictionaryError> {
        if let Cow::Borrowed(message) = self.message
            && !self.is_admitted
        {
            let tree = read(&state.tree);
            let may_add = account.may_add_symbols(tree.free_symbol_bytes());
            self.message = tree.admit(message, may_add)?;
            drop(tree);
            if !may_add && self.message.strings != message.strings {
                account.note_refusal(Quota::SymbolBytes);
            }
        }
        self.is_admitted = true;
        Ok(())
    }
}

/// The names and stacks of a pushed profile that the tree has.
#[derive(Clone, Debug, Default)]
pub struct KnownNames {
    translation: Translation,
    /// Of the tree when they were looked up.
    generation: u64,
}

impl KnownNames {
    /// The nodes, if these are all of the profile's names and stacks. They stay valid.
    pub fn whole(&self, symbols: &SymbolTable, trie: &CallTrie) -> Option<&Translation> {
        let is_whole = self.translation.marks() == Marks::of(symbols, trie);
        is_whole.then_some(&self.translation)
    }
}

impl CollectorState {
    /// Looks up the names and stacks of a pushed profile, up to the first that the tree lacks.
    /// What other series have sent already needs no dictionary, which would copy all names.
    pub fn known_names(&self, symbols: &SymbolTable, trie: &CallTrie) -> KnownNames {
        let sender = Tables { symbols, trie };
        let generation = read(&self.tree).generation();
        let mut translation = Translation::default();
        let mut count = DICTIONARY_SLICE_ENTRIES;
        while count == DICTIONARY_SLICE_ENTRIES {
            count = read(&self.tree).apply_known_tables(sender, &mut translation, count);
        }
        KnownNames {
            translation,
            generation,
        }
    }

    /// Adds the names and stacks of a pushed profile to the tree after those that are [known](Self::known_names),
    /// within the account's quotas. Returns their counterparts there, whose nodes stay valid: nothing of them has to be
    /// kept for the sender.
    pub fn translate(
        &self,
        symbols: &SymbolTable,
        trie: &CallTrie,
        known: KnownNames,
        account: &Account,
    ) -> Result<Translation, DictionaryError> {
        // The push may have waited for so long that its names were forgotten, and their ids are of others.
        let is_current = read(&self.tree).generation() - known.generation <= 1;
        let mut translation = if is_current {
            known.translation
        } else {
            Translation::default()
        };
        let mut applied = translation.marks();
        while let Some(message) =
            dictionary_since(symbols, trie, &mut applied, MESSAGE_BYTES_TARGET)
        {
            // Imports cut names and stacks to what a dictionary may have, so no entry is invalid.
            let mut pending = PendingDictionary::new(&message);
            while pending.apply(self, &mut translation, account)? {
                thread::yield_now();
            }
        }
        Ok(translation)
    }
}

impl Ingest {
    /// Applies a dictionary. Returns a refusal if it is invalid. A large one takes a while, in which
    /// others use the tree and the session: it is applied in slices, each under their locks.
    pub fn receive_dictionary(
        &self,
        attachment: &Attachment,
        dictionary: &v1::Dictionary,
        received_at: Timestamp,
    ) -> Result<Option<Kind>, StaleStream> {
        let mut pending = PendingDictionary::new(dictionary);
        loop {
            let applied = self.apply_slice(attachment, &mut pending, received_at)?;
            match applied {
                SliceOutcome::More => thread::yield_now(),
                SliceOutcome::Done => return Ok(None),
                SliceOutcome::Refused(kind) => return Ok(Some(kind)),
            }
        }
    }

    /// Applies the next slice of a dictionary. A dictionary is checked whole before its first slice.
    pub fn apply_slice(
        &self,
        attachment: &Attachment,
        pending: &mut PendingDictionary<'_>,
        received_at: Timestamp,
    ) -> Result<SliceOutcome, StaleStream> {
        let mut session = attachment.session(received_at)?;
        let translation = Arc::make_mut(&mut session.translation);
        let applied = pending.apply(&self.state, translation, &attachment.account);
        Ok(match applied {
            Ok(true) => SliceOutcome::More,
            Ok(false) => {
                if let Some(invalid) = &pending.invalid {
                    note_rejection(&attachment.cell, &mut session, &in_words(invalid));
                }
                SliceOutcome::Done
            }
            // A dictionary has no send time, so a refusal of it carries no receipt.
            Err(error) => {
                let reason = error.to_string();
                SliceOutcome::Refused(refuse(&attachment.cell, &mut session, 0, reason, None))
            }
        })
    }
}

/// The reason of a dictionary's rejected part.
fn in_words(InvalidEntries { count, first }: &InvalidEntries) -> String {
    format!("{count} entries of a dictionary, stored as [truncated] or [overflow]: {first}")
}
