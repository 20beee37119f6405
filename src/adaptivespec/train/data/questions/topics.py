"""What people ask a chat model about, by field: the slots of the chat templates."""

from __future__ import annotations

from adaptivespec.train.data.questions.grammar import Slot, entries
from adaptivespec.train.data.questions.words import ANIMALS, ANIMALS_MANY, CITIES, COUNTRIES, JOBS

TOPICS: dict[str, Slot] = {
    "animal": ANIMALS,
    "animals": ANIMALS_MANY,
    "city": CITIES,
    "country": COUNTRIES,
    "job": JOBS,
    "science": entries(
        """gravity; magnetism; the water cycle; plate tectonics; evolution; natural selection;
        DNA replication; the immune system; vaccines; antibiotics; black holes; the life of a
        star; tides; eclipses; the seasons; lightning; rainbows; earthquakes; volcanoes;
        fossils; the carbon cycle; the greenhouse effect; ocean currents; coral reefs;
        pollination; fermentation; rust; acids and bases; chemical bonds; the periodic table;
        catalysts; radioactivity; nuclear fusion; entropy; friction; buoyancy; surface
        tension; sound waves; light refraction; electric circuits; static electricity;
        semiconductors; lasers; the human heart; digestion; the nervous system; sleep; memory;
        pain; hormones; blood types; allergies; cell division; viruses; bacteria; mushrooms;
        bird migration; camouflage; hibernation; food chains; symbiosis; soil formation;
        glaciers; deserts; the ozone layer; comets; the moon's phases; satellites; rocket
        engines; telescopes; the speed of light; time dilation; the Doppler effect; osmosis;
        enzymes; proteins; stem cells; gene editing; genetic inheritance; extinction;
        biodiversity; heat transfer; pressure; inertia"""
    ),
    "tech": entries(
        """the internet; Wi-Fi; Bluetooth; GPS; a search engine; a database; cloud computing;
        encryption; a password manager; two-factor authentication; blockchain; open-source
        software; version control; an operating system; a compiler; computer memory; a
        graphics card; a touchscreen; a solar panel; a wind turbine; an electric motor; a heat
        pump; a battery; a refrigerator; a microwave oven; noise-cancelling headphones; a 3D
        printer; a barcode; a QR code; neural networks; large language models; recommendation
        systems; speech recognition; computer viruses; phishing; cookies in a browser; data
        compression; virtual reality; self-driving cars; drones; robots; smart meters; a web
        server; an API; caching; unit tests; a firewall; spam filters; email"""
    ),
    "history": entries(
        """the Industrial Revolution; the French Revolution; the fall of Rome; the Silk Road; the
        Black Death; the Renaissance; the invention of printing; the Cold War; the space race;
        the Great Depression; ancient Egypt; the Mayan civilization; the Ottoman Empire; the
        Mongol Empire; the Viking age; feudalism; the Magna Carta; the Enlightenment; the age
        of exploration; the Meiji Restoration; the abolition of slavery; women's suffrage; the
        civil rights movement; decolonization; the Berlin Wall; the Roman Republic; Athenian
        democracy; the Han dynasty; the Crusades; the Inca road system; the Library of
        Alexandria; the Reformation; World War I; the Marshall Plan; the European Union; the
        Panama Canal; the gold rush; the Hanseatic League; the invention of writing"""
    ),
    "idea": entries(
        """democracy; justice; freedom of speech; human rights; utilitarianism; stoicism;
        existentialism; free will; the social contract; capitalism; globalization; inflation;
        supply and demand; opportunity cost; comparative advantage; taxes; central banks;
        unemployment; public goods; the placebo effect; confirmation bias; the halo effect;
        peer pressure; motivation; procrastination; emotional intelligence; cultural identity;
        urbanization; propaganda; nationalism; the welfare state; separation of powers; checks
        and balances; irony; metaphor; satire; tragedy; magical realism; romanticism;
        impressionism; cubism; the sonnet; jazz; folk tales; myths; friendship; happiness;
        courage; forgiveness; gratitude; privacy; leadership; creativity; beauty; tradition"""
    ),
    "daily": entries(
        """cooking rice; baking bread; making coffee; growing tomatoes; keeping houseplants;
        ironing a shirt; removing a stain; cleaning an oven; fixing a flat bicycle tyre;
        painting a wall; packing a suitcase; moving to a new flat; choosing a mattress; saving
        electricity; composting; sorting waste; planning meals; shopping on a budget; learning
        to swim; training for a 10 km run; stretching after sport; falling asleep faster;
        waking up early; learning a language; reading more; writing a diary; taking better
        photos; playing the guitar; adopting a dog; training a puppy; organising a desk;
        managing email; preparing a presentation; taking notes; studying for an exam; making
        small talk; saying no politely; giving feedback; hosting a dinner; choosing a gift;
        sewing on a button; sharpening a knife; unclogging a drain; backing up photos; buying
        a used car; hanging a picture; storing vegetables; making a budget; hiking safely;
        camping in the rain"""
    ),
    "issue": entries(
        """homework in primary school; school uniforms; a four-day working week; remote work;
        free public transport; zoos; electric cars; nuclear energy; tourism in small towns;
        fast fashion; social media for teenagers; video games; space travel; eating less meat;
        plastic packaging; bike lanes in cities; paper books; online shopping; learning Latin;
        year-round daylight saving time; tipping in restaurants; universal basic income;
        voting at sixteen; working on Sundays; large families; city life; robots in nursing;
        grades in art class; phones in class; loud music in public; self-checkout machines;
        home cooking; early retirement; a gap year; learning to program at school; museums
        without fees; short showers; keeping cats indoors; open-plan offices; taking the night
        train"""
    ),
    "pair": entries(
        """cats and dogs; tea and coffee; trains and planes; books and films; rent and ownership
        of a home; cities and villages; solar and wind power; butter and margarine; Python and
        JavaScript; Java and C++; SQL and NoSQL databases; frogs and toads; alligators and
        crocodiles; weather and climate; mass and weight; speed and velocity; mitosis and
        meiosis; viruses and bacteria; arteries and veins; igneous and sedimentary rocks;
        comets and asteroids; a simile and a metaphor; a novel and a short story; a republic
        and a monarchy; stocks and bonds; debit and credit cards; saving and investing;
        revenue and profit; a virus and a worm; RAM and storage; HTTP and HTTPS; Linux and
        Windows; yoga and pilates; running and cycling; violin and viola; jam and jelly; moths
        and butterflies; fog and smog; deductive and inductive reasoning; empathy and
        sympathy; ethics and law; baroque and classical music; oil and watercolour paint;
        breakfast and brunch; a hostel and a hotel"""
    ),
    "theme": entries(
        """the first snow; a lost umbrella; an old lighthouse; a night train; a broken watch; the
        sea in winter; a market stall; a forgotten letter; growing older; a new neighbour; a
        quiet library; rain on a tin roof; a grandmother's garden; the last day of school; a
        paper boat; a lonely robot; a talking fox; a missing key; the smell of bread;
        moonlight; a mountain path; homesickness; a street musician; an empty theatre; morning
        coffee; a storm at sea; autumn leaves; a secret door; a clockmaker; a city without
        cars; a stubborn donkey; two rival bakers; a message in a bottle; a dragon who is
        afraid of fire; a ship's cat; a museum at night; the color blue; an unexpected
        friendship; a village on stilts; a map with a mistake; a childhood home; silence; a
        power cut"""
    ),
    "hero": entries(
        """a retired pilot; a young inventor; a shy librarian; a curious child; a tired
        detective; a baker with no sense of smell; a gardener on Mars; a lighthouse keeper; a
        taxi driver; a violin maker; a queen in disguise; a clumsy wizard; a nurse on a night
        shift; a fisherman; an apprentice; a chess champion; a postman; a beekeeper; a ghost
        who likes jokes; a small robot; two sisters; a teacher on her first day; an astronaut;
        a street cat; a mountain guide; a travelling cook; a translator"""
    ),
    "goal": entries(
        """learn to cook; start a small bakery; run a half marathon; pass a driving test; save
        for a house; read thirty books a year; move abroad; change careers; write a novel;
        learn Spanish; lose a few pounds; spend less time on my phone; make new friends in a
        new town; sleep better; start a garden; learn to program; get better at public
        speaking; play the piano; organise a family reunion; open an online shop; prepare for
        a job interview; become a better listener; get fitter; reduce stress; start a book
        club; learn to draw; volunteer; travel on a small budget; adopt a pet; drink more
        water"""
    ),
    "gadget": entries(
        """a foldable bicycle; a smart water bottle; a solar lantern; handmade soap; an ergonomic
        chair; a wooden puzzle; noise-free headphones; a travel mug; an e-book reader; a
        bamboo toothbrush; a raincoat for dogs; a pocket projector; a herb garden kit; a
        weighted blanket; a kitchen scale; a city map app; a language course; a vegan
        chocolate bar; a leather notebook; a mini drone; a sleep tracker; a camping hammock; a
        set of paint brushes; a standing desk; a bread machine"""
    ),
    "role": entries(
        """a travel guide; a history teacher; a friendly chef; a fitness coach; a career adviser;
        a museum guide; a patient tutor; a science journalist; a sports commentator; a pirate
        captain; a medieval knight; a detective in the 1920s; an alien visiting Earth; a wise
        old owl; a weather presenter; a film critic; a customer support agent; a kindergarten
        teacher; a space engineer; a poet; a librarian; a ship's cook; a time traveller from
        the year 2300; a garden gnome; a mayor of a small town; a butler; a stand-up comedian;
        a nutritionist; a philosopher; a radio host; a robot that wants to be human; a
        mountain; the river Nile; a Roman soldier; a jazz musician; a fashion designer"""
    ),
    "event": entries(
        """a birthday party; a team meeting; a school play; a farewell lunch; a wedding; a book
        reading; a street festival; a charity run; a housewarming; a science fair; a job
        interview; a weekend trip; a workshop; a concert; a picnic; a conference; a charity
        bake sale; an open day; a product launch"""
    ),
    "language": entries(
        "French; Spanish; German; Italian; Portuguese; Dutch; Swedish; Latin; Polish"
    ),
    "phrase": entries(
        """Where is the nearest train station?; I would like a table for two, please.; The
        weather is lovely today.; How much does this cost?; My brother lives in {city}.; We
        arrived late because of the traffic.; Could you help me carry this box?; I have been
        learning for {2-9} months.; The shop closes at {5-9} o'clock.; Thank you for the
        wonderful evening.; I forgot my keys at home.; She reads a book every week.; We are
        looking for a {job}.; Good morning, did you sleep well?; The soup is too hot.; He
        wants to visit {country} next year.; Please call me when you arrive."""
    ),
    "mood": entries(
        "cheerful; melancholy; mysterious; funny; calm; dramatic; hopeful; spooky; tender; "
        "ironic; epic"
    ),
    "tone": entries(
        "formal; friendly; polite; casual; persuasive; enthusiastic; apologetic; "
        "professional; warm; firm"
    ),
    "audience": entries(
        """a ten-year-old; a beginner; a high school student; my grandmother; a busy manager; a
        first-year student; someone who dislikes science; a tourist; a new colleague; an expert in
        another field; a class of teenagers; a curious five-year-old; a job applicant; a parent"""
    ),
    "proverb": entries(
        """Rome was not built in a day; a stitch in time saves nine; actions speak louder than
        words; look before you leap; many hands make light work; too many cooks spoil the
        broth; the early bird catches the worm; every cloud has a silver lining; you can't
        judge a book by its cover; a watched pot never boils; practice makes perfect; better
        late than never; when in Rome, do as the Romans do; still waters run deep; the grass
        is always greener on the other side; haste makes waste"""
    ),
    "reader": entries(
        "colleagues; customers; neighbours; students; parents; members; guests; friends"
    ),
    # Any subject that "explain", "quiz me on" and the like can take.
    "subject": ("{science}", "{science}", "{tech}", "{history}", "{idea}", "{idea}"),
}
