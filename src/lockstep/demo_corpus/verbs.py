"""The verbs: one table for each construction.

The English column gives base/past/participle where they are irregular. The German column marks a separable prefix with
a bar, gives third person and participle of irregular verbs, `+sein` for the auxiliary and `=` for a preterite that is
preferred to the perfect. A star marks a state, which takes neither the progressive nor an imperative.
"""

# English, German, who does it, which adverbials fit.
INTRANSITIVE = """
sleep/slept/slept        schlafen schläft geschlafen                     creatures         place
laugh                    lachen                                          people            voice place
cry                      weinen                                          people            voice place
work                     arbeiten                                        people            speed neat place company
dance                    tanzen                                          people            skill place company
sing/sang/sung           singen singt gesungen                           people            voice skill place company
swim/swam/swum           schwimmen schwimmt geschwommen +sein            creatures         speed skill
smoke                    rauchen                                         people            place
wait                     warten                                          people            focus place company
get up/got/got           auf|stehen steht aufgestanden +sein             people            speed
wake up/woke/woken       auf|wachen +sein                                creatures         speed
fall asleep/fell/fallen  ein|schlafen schläft eingeschlafen +sein        creatures    speed place
arrive                   an|kommen kommt angekommen +sein                people,vehicles   city means
come back/came/come      zurück|kommen kommt zurückgekommen +sein        people            means company
go out/went/gone         aus|gehen geht ausgegangen +sein                people            company
go shopping/went/gone    ein|kaufen                                      people            place company
cook                     kochen                                          people            skill place company
study                    lernen                                          people            place company
shout                    schreien schreit geschrien                      people            place
smile                    lächeln                                         people            place
depart                   ab|fahren fährt abgefahren +sein                bus,train,taxi,ship,boat  city
stop                     an|halten hält angehalten                       bus,train,taxi,car,driver  city
"""

# English, German, what it is done to (accusative), which adverbials fit.
TRANSITIVE = """
buy/bought/bought        kaufen                                   texts food groceries clothes objects  place company
sell/sold/sold           verkaufen                                texts food clothes objects            place
find/found/found         finden findet gefunden                   texts clothes objects pets            place
look for                 suchen                                   people pets texts clothes objects     place company
need*                    brauchen                                 texts clothes objects food groceries
see/saw/seen*            sehen sieht gesehen                      people animals objects places         place
have/had/had*            haben hat gehabt =hatte                  pets clothes objects
own*                     besitzen besitzt besessen                pets clothes objects
like*                    mögen mag gemocht =mochte                people animals food groceries drinks places
love*                    lieben                                   people animals
hate*                    hassen                                   animals people
know/knew/known*         kennen kennt gekannt                     people places
understand/understood/understood*  verstehen versteht verstanden  people texts
hear/heard/heard*        hören                                    people animals
miss*                    vermissen                                people pets
read/read/read           lesen liest gelesen                      texts    speed focus place
write/wrote/written      schreiben schreibt geschrieben           writings    speed place
translate                übersetzen                               texts                                 neat speed
sign                     unterschreiben unterschreibt unterschrieben  letter,report,message             neat
print                    drucken                                  texts                                 place
copy                     ab|schreiben schreibt abgeschrieben      texts                                 neat
eat/ate/eaten            essen isst gegessen                      food groceries    speed place company dish
drink/drank/drunk        trinken trinkt getrunken                 drinks servings    speed place company
bake                     backen backt gebacken                    cake,roll,pizza,bread                 place company
order                    bestellen                                food drinks servings                  place dish
taste                    probieren                                food groceries                        care dish
pay for/paid/paid        bezahlen                                 food servings ticket,gift
visit                    besuchen                                 people places                         company
meet/met/met             treffen trifft getroffen                 people                                place
invite                   ein|laden lädt eingeladen                people
call                     an|rufen ruft angerufen                  people                                speed
pick up                  ab|holen                                 people                                place
ask                      fragen                                   people
greet                    grüßen                                   people                                place
kiss                     küssen                                   people                                place
hug                      umarmen                                  people                                care place
support                  unterstützen                             people
photograph               fotografieren                            people animals places                 neat
draw/drew/drawn          zeichnen zeichnet gezeichnet             people animals objects                neat skill
watch                    beobachten                               people animals                        focus place
forget/forgot/forgotten/forgetting  vergessen vergisst vergessen  texts clothes things
lose/lost/lost           verlieren verliert verloren              texts clothes things                  place
open                     auf|machen                               containers                            care speed
close                    zu|machen                                containers                            care
lock                     ab|schließen schließt abgeschlossen      door,suitcase,cupboard,house,car,bicycle  care
turn on                  ein|schalten                             devices                               speed
turn off                 aus|schalten                             devices                               speed
repair                   reparieren                               devices vehicles furniture    speed neat place
wash/washed/washed       waschen wäscht gewaschen                 clothes vehicles                      neat place
clean                    putzen                                   rooms window,shoe,mirror,car          neat company
wear/wore/worn           tragen trägt getragen                    clothes
try on                   an|probieren                             clothes                               place
take off/took/taken      aus|ziehen zieht ausgezogen              coat,shoe,jacket,sweater,shirt,dress  speed
throw away/threw/thrown  weg|werfen wirft weggeworfen             texts clothes things furniture
take along/took/taken    mit|nehmen nimmt mitgenommen             people texts clothes things
bring along/brought/brought  mit|bringen bringt mitgebracht       food servings texts things people
steal/stole/stolen       stehlen stiehlt gestohlen                vehicles things texts                 place
hide/hid/hidden          verstecken                               texts clothes things                  care place
choose/chose/chosen      aus|suchen                               clothes furniture texts things        speed company
borrow                   aus|leihen leiht ausgeliehen             texts things vehicles clothes
feed/fed/fed             füttern                                  animals                               care company
catch/caught/caught      fangen fängt gefangen                    animals thief,ball
receive                  bekommen bekommt bekommen                texts gift,key,ticket,flower,picture
build/built/built        bauen                             house,bridge,boat,ship,shelf,table,church,castle  company
use                      benutzen                                 devices vehicles                      care place
hang up/hung/hung        auf|hängen                               picture,mirror,map,lamp,coat,dress,shirt  care
pack                     ein|packen                               clothes things texts                  speed
unpack                   aus|packen                               suitcase,bag,gift,box,basket          speed care
look at                  an|schauen                               people animals picture,map,mirror
leave/left/left          verlassen verlässt verlassen             people places
rent                     mieten                                   house,flat,car,boat,bicycle,office    company
prepare                  vor|bereiten bereitet vorbereitet        events soup,salad                     neat company
plan                     planen                                   events                                neat company
cancel/cancelled/cancelled/cancelling  ab|sagen                   events
"""

# English, German, whom it concerns (dative), which adverbials fit.
DATIVE_OBJECT = """
help                     helfen hilft geholfen                    people                                place
thank                    danken                                   people
follow                   folgen +sein                             people animals                        care
answer                   antworten                                people                                speed
believe*                 glauben                                  people
trust*                   vertrauen                                people
congratulate             gratulieren                              people
listen to                zu|hören                                 people                                focus
contradict               widersprechen widerspricht widersprochen  people
forgive/forgave/forgiven  verzeihen verzeiht verziehen            people
"""

# English, German, what is handed over (accusative); the receiver is a person in the dative, in English with "to".
RECIPIENT = """
give/gave/given          geben gibt gegeben                       texts things clothes
show/showed/shown        zeigen                                   texts things clothes vehicles pets devices
send/sent/sent           schicken                                 writings gift,key,ticket,flower,picture
lend/lent/lent           leihen leiht geliehen                    texts things clothes vehicles
offer                    an|bieten bietet angeboten               food servings drinks
return                   zurück|geben gibt zurückgegeben          texts things clothes
explain                  erklären                                 texts devices map,picture
recommend                empfehlen empfiehlt empfohlen            food hotel,restaurant,museum,theatre texts
read/read/read           vor|lesen liest vorgelesen               texts
bring/brought/brought    bringen bringt gebracht                  food servings things texts
describe                 beschreiben beschreibt beschrieben       objects places
"""

# English with its preposition, German, German preposition and case, what it governs, which adverbials fit.
PREPOSITIONAL = """
wait for                 warten                                   auf acc   people vehicles             place
think of/thought/thought  denken denkt gedacht                    an acc    people events
dream of                 träumen                                  von dat   people animals drinks events
talk to                  sprechen spricht gesprochen              mit dat   people                      voice place
talk about               sprechen spricht gesprochen              über acc  people texts events         voice place
laugh about              lachen                                   über acc  people texts                voice
look after               auf|passen                               auf acc   child,animals
take part in/took/taken  teil|nehmen nimmt teilgenommen           an dat    events
ask about                fragen                                   nach dat  events texts people
play with                spielen                                  mit dat   pets child,doll,ball        place
argue with               streiten streitet gestritten             mit dat   people                      voice place
"""

# English, German, who does it, where to, which adverbials fit.
MOTION = """
go/went/gone             gehen geht gegangen +sein                people            places         company
walk                     laufen läuft gelaufen +sein              creatures         places         speed
run/ran/run              rennen rennt gerannt +sein               creatures         places         speed
drive/drove/driven       fahren fährt gefahren +sein              people            outdoors       speed care company
fly/flew/flown           fliegen fliegt geflogen +sein            people,plane      cities         company
travel/travelled/travelled/travelling  reisen +sein               people            cities         company means
come/came/come           kommen kommt gekommen +sein              people            places         company
"""

# English, German, what is moved (accusative); the goal is a place.
TRANSPORT = """
carry                    tragen trägt getragen                    things clothes suitcase,box,chair,table,armchair,bed
take/took/taken          bringen bringt gebracht                  people pets
accompany                begleiten                                people
push                     schieben schiebt geschoben               bicycle,table,car,cupboard,bed,sofa,shelf,box
"""

# English, German; a place is part of the meaning.
POSITION = """
live                     wohnen
stay                     bleiben bleibt geblieben +sein
sit/sat/sat              sitzen sitzt gesessen
stand/stood/stood        stehen steht gestanden
"""

# English, German; a clause with "that" follows.
REPORTING = """
say/said/said            sagen
think/thought/thought*   denken denkt gedacht
believe*                 glauben
hope                     hoffen
know/knew/known*         wissen weiß gewusst =wusste
"""

# English, German; an infinitive with "to" follows.
INTENDING = """
try                      versuchen
promise                  versprechen verspricht versprochen
decide                   beschließen beschließt beschlossen
begin/began/begun/beginning  an|fangen fängt angefangen
forget/forgot/forgotten/forgetting  vergessen vergisst vergessen
"""

# English, German; the subject is always "it".
WEATHER = """
rain                     regnen
snow                     schneien
"""

# Verbs without intention: they have no imperative, no plans and no progressive.
UNINTENDED = """
wake up, fall asleep, arrive, depart, stop, cry, lose, forget, find, receive, dream of, steal
"""

# Verbs of duration ("has been waiting for three hours").
DURATIVE = """
sleep, work, wait, study, smoke, live, sit, stand, cook, dance, sing, love, hate, know, own, miss, need, trust,
wait for, look for, play with, argue with, talk to, talk about, repair, write, watch
"""
